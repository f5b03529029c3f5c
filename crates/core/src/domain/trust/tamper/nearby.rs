//! Bounds for the comparison of each removed item of a change with the added ones, so that a large change is compared in a
//! time that grows with its size only.

/// Maximum number of added items that a removed one is compared with.
const CANDIDATES: usize = 100;
/// Maximum number of comparisons of two lists. In longer lists, each removed item is compared with fewer added ones.
const COMPARISONS: usize = 10_000;

/// Returns the added items that the removed item at index `at` of `removed` items is compared with: those at about the same
/// place in their list. In short lists, these are all.
pub(super) fn near<T>(added: &[T], at: usize, removed: usize) -> &[T] {
    let compared = (COMPARISONS / removed.max(1)).clamp(1, CANDIDATES).min(added.len());
    let middle = at * added.len() / removed.max(1);
    let first = middle.saturating_sub(compared / 2).min(added.len() - compared);
    &added[first..first + compared]
}

/// Whether two lists are so long that not all of their items can be compared with each other.
pub(super) fn is_too_many(removed: usize, added: usize) -> bool {
    removed.saturating_mul(added) > COMPARISONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_are_compared_completely() {
        for at in 0..3 {
            assert_eq!(near(&[1, 2, 3, 4], at, 3), [1, 2, 3, 4]);
        }
        assert_eq!(near::<u8>(&[], 0, 1), [0_u8; 0]);
    }

    #[test]
    fn long_lists_are_compared_at_the_same_place() {
        let added: Vec<usize> = (0..50_000).collect();
        let all: usize = (0..50_000).map(|at| near(&added, at, 50_000).len()).sum();
        assert_eq!(all, 50_000);
        assert_eq!(near(&added, 49_999, 50_000), [49_999]);
        let wide = near(&added, 50, 100);
        assert_eq!((wide.len(), wide.contains(&25_000)), (CANDIDATES, true));
    }
}
