//! Sysfs trees in a temporary folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use kinlock_linux::topology::Topology;

/// A tree that is deleted when dropped.
pub struct FakeSysfs {
    root: PathBuf,
}

impl FakeSysfs {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("kinlock-sysfs-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir(&root).unwrap();
        FakeSysfs { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn topology(&self) -> Topology {
        Topology::from_sysfs(&self.root).unwrap()
    }

    pub fn write(&self, path: &str, contents: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{contents}\n")).unwrap();
    }

    pub fn cpus(&self, present: &str, online: &str) {
        self.write("devices/system/cpu/present", present);
        self.write("devices/system/cpu/online", online);
    }

    pub fn nodes(&self, online: &str) {
        self.write("devices/system/node/online", online);
    }

    pub fn node(&self, number: usize, cpus: &str, distances: &str) {
        self.write(&format!("devices/system/node/node{number}/cpulist"), cpus);
        self.write(
            &format!("devices/system/node/node{number}/distance"),
            distances,
        );
    }

    pub fn cache(&self, cpu: usize, index: usize, level: usize, kind: &str, shared: &str) {
        let cache = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
        self.write(&format!("{cache}/level"), &level.to_string());
        self.write(&format!("{cache}/type"), kind);
        self.write(&format!("{cache}/shared_cpu_list"), shared);
    }

    /// Two sockets of 96 cores with two threads each; 8 cores share a cache.
    pub fn epyc_9654(&self) {
        self.cpus("0-383", "0-383");
        self.nodes("0-1");
        self.node(0, "0-95,192-287", "10 32");
        self.node(1, "96-191,288-383", "32 10");
        for cpu in 0..384 {
            let core = cpu % 192;
            let socket = core / 96;
            let in_socket = ["0-95,192-287", "96-191,288-383"][socket];
            let first = core / 8 * 8;
            let in_cache = format!("{}-{},{}-{}", first, first + 7, first + 192, first + 199);
            let in_core = format!("{core},{}", core + 192);
            self.cache(cpu, 0, 1, "Data", &in_core);
            self.cache(cpu, 1, 1, "Instruction", &in_core);
            self.cache(cpu, 2, 2, "Unified", &in_core);
            self.cache(cpu, 3, 3, "Unified", &in_cache);
            let topology = format!("devices/system/cpu/cpu{cpu}/topology");
            self.write(
                &format!("{topology}/physical_package_id"),
                &socket.to_string(),
            );
            self.write(&format!("{topology}/core_siblings_list"), in_socket);
            self.write(&format!("{topology}/thread_siblings_list"), &in_core);
        }
    }
}

impl Drop for FakeSysfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
