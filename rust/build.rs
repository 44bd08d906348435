//! Computes `SOURCE_FINGERPRINT` (the algorithm is documented in `python/dtq/_core.pyi`, and computed again by
//! `dtq._stale` to notice an extension that is older than its sources).

use std::fs;
use std::io;
use std::path::Path;

fn collect(root: &Path, relative: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(relative))? {
        let entry = entry?;
        let path = format!("{relative}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(root, &path, found)?;
        } else if path.ends_with(".rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&root);
    let mut paths = vec!["Cargo.toml".to_owned()];
    collect(root, "rust", &mut paths)?;
    paths.sort();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for path in &paths {
        add(path.as_bytes());
        add(&fs::read(root.join(path))?);
    }
    println!("cargo::rerun-if-changed=rust");
    println!("cargo::rerun-if-changed=Cargo.toml");
    println!("cargo::rustc-env=DTQ_SOURCE_FINGERPRINT={hash:016x}");
    Ok(())
}
