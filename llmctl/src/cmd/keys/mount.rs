//! Mounts where a file cannot be replaced, or where a router never sees the replacement: mounts of
//! a single file, and volumes that Kubernetes writes.

use std::fs;
use std::path::{Path, PathBuf};

/// Why a file must not be edited here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mounted {
    /// The file is a mount point: a Kubernetes `subPath`, or a bind mount of one file.
    Alone,
    /// The file lies in a volume that Kubernetes fills from a Secret or a ConfigMap.
    Projected,
}

impl Mounted {
    /// The problem and its remedy, as the text after "keys: ".
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Alone => {
                "the file is a mount of its own (a subPath or a bind mount of one file): nothing can replace it, and a router never sees it change; mount its whole directory"
            }
            Self::Projected => {
                "the file lies in a volume that Kubernetes fills and would overwrite: change the Secret instead, e.g. `kubectl create secret generic NAME --from-file=keys --dry-run=client -o yaml | kubectl apply -f -`"
            }
        }
    }
}

/// How the file is mounted, after following links; `None` when it can be replaced.
pub(super) fn of(target: &Path) -> Option<Mounted> {
    if is_projected(target) {
        return Some(Mounted::Projected);
    }
    // Without /proc the mounts are unknown; then the replacement itself may fail.
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    points(&table)
        .any(|point| point == target)
        .then_some(Mounted::Alone)
}

/// Kubernetes keeps projected files below `..<timestamp>` and links to them through `..data`.
fn is_projected(target: &Path) -> bool {
    let parent = target.parent().and_then(Path::file_name);
    parent.is_some_and(|name| name.as_encoded_bytes().starts_with(b"..") && name != "..")
}

/// The mount points of `/proc/self/mountinfo` (proc(5)): the fifth field, with blanks and
/// backslashes in octal.
fn points(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().filter_map(|line| {
        let field = line.split(' ').nth(4)?;
        let plain = field
            .replace("\\040", " ")
            .replace("\\011", "\t")
            .replace("\\012", "\n")
            .replace("\\134", "\\");
        Some(PathBuf::from(plain))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_from_the_kernels_table() {
        let table = "36 35 98:0 / / rw,noatime - ext3 /dev/root rw\n\
                     41 36 98:0 /vol/keys /etc/llm-router/the\\040keys ro - ext4 /dev/sda ro\n";
        let found: Vec<_> = points(table).collect();
        assert_eq!(
            found,
            [Path::new("/"), Path::new("/etc/llm-router/the keys")]
        );
    }

    #[test]
    fn a_volume_of_kubernetes_is_known_by_its_directory() {
        assert!(is_projected(Path::new("/keys/..2026_11_30_04_00/keys")));
        assert!(!is_projected(Path::new("/etc/llm-router/keys")));
        assert!(!is_projected(Path::new("/keys")));
    }

    #[test]
    fn an_ordinary_file_can_be_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
        fs::write(&file, "").unwrap();
        assert_eq!(of(&file.canonicalize().unwrap()), None);
    }
}
