//! Threads lose their CPU at the worst moments: inside the section, on the way in and on the way
//! out.

use super::{Context, Events, Stage};
use crate::report::Findings;
use kinlock_core::events::Event;
use std::sync::Arc;

pub(super) fn run(context: &Context) -> Findings {
    let events = Events::start();
    let stage = Arc::new(Stage::new(context.specimen.new));
    let contended = || events.get(Event::SlowPath) > 0 || context.orders.threads == 1;
    let findings = context.contend(&stage, |_| (), |_| contended());
    let detail = events.list(&[
        Event::SlowPath,
        Event::Queued,
        Event::Park,
        Event::Steal,
        Event::Wake,
        Event::HandoffRequest,
        Event::Pickup,
    ]);
    findings.on(&stage.state).with_reach(contended(), detail)
}
