//! Measurements that others published, and how to simulate them.
