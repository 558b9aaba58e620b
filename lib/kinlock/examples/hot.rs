//! A warehouse whose one lock every order needs: what `kinlock run --report` says of a program in
//! Rust. `hot [THREADS [ORDERS]]`; the guide on finding a slow lock has the report.
//!
//! cargo build --release -p kinlock --features report --example hot
//! kinlock run --report -- target/release/examples/hot

use kinlock::{Condvar, Mutex, RwLock};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

/// How many of each thing there are.
#[derive(Default)]
struct Stock(HashMap<u32, u64>);

/// What has been done.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
static PRICES: RwLock<[u64; 16]> = RwLock::new([3; 16]);

struct Shop {
    stock: Mutex<Stock>,
    done: Mutex<usize>,
    changed: Condvar,
}

impl Shop {
    fn order(&self, thing: u32) {
        let mut stock = self.stock.lock();
        // The slow part needs no lock, but runs under one.
        let label = (0..50).map(|n| format!("{thing:x}{n}")).collect::<String>();
        *stock.0.entry(label.len() as u32 ^ thing).or_default() += price(thing);
    }
}

fn price(thing: u32) -> u64 {
    PRICES.read()[thing as usize % 16]
}

fn main() -> ExitCode {
    let number = |at, usual| std::env::args().nth(at).map_or(Ok(usual), |n| n.parse());
    let (Ok(threads), Ok(orders)) = (number(1, 8), number(2, 2000)) else {
        eprintln!("usage: hot [THREADS [ORDERS]]");
        return ExitCode::from(2);
    };
    let shop = Arc::new(Shop {
        stock: Mutex::default(),
        done: Mutex::new(0),
        changed: Condvar::new(),
    });
    // Taken here, so that no thread can say that it is done before this thread waits.
    let mut done = shop.done.lock();
    for number in 0..threads {
        let shop = Arc::clone(&shop);
        std::thread::spawn(move || {
            for turn in 0..orders {
                shop.order(turn as u32);
            }
            LOG.lock().push(format!("customer {number} is served"));
            *shop.done.lock() += 1;
            shop.changed.notify_one();
        });
    }
    shop.changed.wait_while(&mut done, |done| *done < threads);
    let things = shop.stock.lock().0.len();
    println!("{} customers, {things} things", LOG.lock().len());
    ExitCode::SUCCESS
}
