//! Limits before and during runs, settled runs, and concurrent loops.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::domain::providers::prices::TokenUsage;

const NOON: Timestamp = Timestamp(1_795_348_800_000); // 2026-11-22T12:00:00Z

fn usd(usd: f64) -> Money {
    Money::from_usd(usd)
}

fn account(spent: f64, reserved: f64, limit: f64) -> CostAccount {
    CostAccount { spent: usd(spent), reserved: usd(reserved), limit: Some(usd(limit)) }
}

fn ledger(of_loop: CostAccount, of_repository: CostAccount, of_service: CostAccount) -> CostAccounts {
    CostAccounts { of_loop, of_repository, of_service, ..CostAccounts::default() }
}

#[test]
fn run_starts_only_if_likely_cost_fits_every_limit() {
    let wide = account(1.0, 0.0, 50.0);
    let yes = |reserve, at_most| Permit::Yes { reserve: usd(reserve), at_most: Some(usd(at_most)) };
    for (name, ledger, likely, expected) in [
        ("room in all", ledger(account(2.0, 0.0, 10.0), wide, wide), 1.0, Some(yes(1.0, 8.0))),
        ("exactly enough", ledger(account(9.0, 0.0, 10.0), wide, wide), 1.0, Some(yes(1.0, 1.0))),
        ("a cent short", ledger(account(9.01, 0.0, 10.0), wide, wide), 1.0, None),
        ("others have reserved it", ledger(wide, account(0.0, 9.5, 10.0), wide), 1.0, None),
        ("the service has none", ledger(wide, wide, account(50.0, 0.0, 50.0)), 0.01, None),
        ("the first call of a small budget", ledger(account(0.0, 0.0, 0.2), wide, wide), 0.5, Some(yes(0.2, 0.2))),
        ("a budget of nothing", ledger(account(0.0, 0.0, 0.0), wide, wide), 0.5, None),
        ("free models run on nothing", ledger(account(5.0, 0.0, 5.0), wide, wide), 0.0, Some(yes(0.0, 0.0))),
        ("over the limit already", ledger(account(12.0, 0.0, 10.0), wide, wide), 0.1, None),
    ] {
        match (ledger.permit(usd(likely), NOON), expected) {
            (permit @ Permit::Yes { .. }, Some(expected)) => assert_eq!(permit, expected, "{name}"),
            (Permit::No(_), None) => {}
            (permit, _) => panic!("{name}: {permit:?}"),
        }
    }
    let free = CostAccounts::default().permit(usd(3.0), NOON);
    assert_eq!(free, Permit::Yes { reserve: usd(3.0), at_most: None });
}

#[test]
fn refusal_names_limit_and_end() {
    let wide = account(0.0, 0.0, 100.0);
    let Permit::No(day) = ledger(wide, account(4.0, 0.5, 5.0), wide).permit(usd(1.0), NOON) else { panic!() };
    assert_eq!((day.scope, day.used, day.limit), (LimitScope::RepositoryDay, usd(4.5), usd(5.0)));
    assert_eq!(day.free_at, Some(Timestamp(NOON.0 + 12 * 3_600_000)));
    assert_eq!(
        day.to_string(),
        "the repository's budget for the day is $5.00: $4.50 is used or reserved, and the next run needs about $1.00"
    );
    let full = account(5.0, 0.0, 5.0);
    let Permit::No(first) = ledger(full, full, full).permit(usd(1.0), NOON) else { panic!() };
    assert_eq!((first.scope, first.free_at), (LimitScope::Loop, None));
}

#[test]
fn next_midnight_is_in_utc() {
    for (moment, next) in [(0, DAY_MS), (DAY_MS - 1, DAY_MS), (DAY_MS, 2 * DAY_MS), (-1, 0)] {
        assert_eq!(next_midnight(Timestamp(moment)), Timestamp(next));
    }
    assert!(next_midnight(Timestamp(i64::MAX)) >= Timestamp(i64::MAX - DAY_MS));
}

#[test]
fn run_is_ended_by_turn_that_reaches_a_limit() {
    let wide = account(0.0, 0.0, 100.0);
    let ledger = ledger(account(8.0, 0.0, 10.0), wide, wide);
    assert_eq!(ledger.goes_on(usd(1.99), NOON), Ok(()));
    for shown in [2.0, 2.5] {
        assert_eq!(ledger.goes_on(usd(shown), NOON).unwrap_err().scope, LimitScope::Loop);
    }
    let spent = CostAccounts { of_loop: account(10.0, 0.0, 10.0), ..ledger };
    assert_eq!(spent.goes_on(Money(0), NOON), Ok(()), "a run that costs nothing goes on");
    assert!(spent.goes_on(Money(1), NOON).is_err());
}

#[test]
fn likely_cost_follows_past_runs() {
    for (past, likely) in [
        (vec![], 0.5),
        (vec![2.0], 2.0),
        (vec![1.0, 3.0], 3.0),
        (vec![0.0, 0.0], 0.0),
        (vec![1.0; 20].into_iter().chain([999.0]).collect(), 1.0),
    ] {
        let past: Vec<Money> = past.into_iter().map(usd).collect();
        assert_eq!(likely_cost(&past), usd(likely), "{past:?}");
    }
}

#[test]
fn lost_run_is_charged_the_reported_or_reserved_amount() {
    let quiet = Reservation::new(usd(1.0), NOON);
    let shown = quiet.showing(usd(0.3)).showing(usd(0.2));
    let overspent = quiet.showing(usd(1.7));
    for (reservation, ending, booked) in [
        (quiet, Ending::Lost { at_least: Money(0) }, 1.0),
        (shown, Ending::Lost { at_least: Money(0) }, 0.3),
        (overspent, Ending::Lost { at_least: Money(0) }, 1.7),
        (quiet, Ending::Lost { at_least: Money::from_usd(1.2) }, 1.2),
        (overspent, Ending::Lost { at_least: Money::from_usd(1.2) }, 1.7),
        (shown, Ending::Cost(usd(0.4)), 0.4),
        (shown, Ending::Cost(usd(-0.4)), 0.0),
        (quiet, Ending::NeverRan, 0.0),
    ] {
        assert_eq!(reservation.settle(ending), usd(booked), "{reservation:?} {ending:?}");
    }
    assert_eq!((shown.held(), overspent.held()), (usd(1.0), usd(1.7)));
    assert_eq!(Reservation::new(usd(-3.0), NOON).amount, Money(0));
}

/// Returns figures of a session: input and output tokens, and dollars.
fn figures(input: u64, output: u64, dollars: Option<f64>) -> Cumulative {
    Cumulative { usage: TokenUsage { input, output, ..TokenUsage::default() }, cost: dollars.map(usd) }
}

#[test]
fn session_totals_are_split_by_run() {
    let first = figures(100, 50, Some(0.5));
    for (name, before, after, seen, used) in [
        ("of the session", first, figures(300, 80, Some(0.8)), 230, figures(200, 30, Some(0.3))),
        ("nothing was added", first, first, 0, figures(0, 0, Some(0.0))),
        ("of the run alone", first, figures(130, 60, Some(0.6)), 190, figures(130, 60, Some(0.6))),
        ("of a longer run alone", first, figures(500, 60, Some(2.0)), 560, figures(500, 60, Some(2.0))),
        ("added up anew", first, figures(20, 5, Some(0.1)), 0, figures(20, 5, Some(0.1))),
        ("money begun anew", first, figures(300, 80, Some(0.2)), 230, figures(200, 30, Some(0.2))),
        ("no money is told", figures(100, 50, None), figures(300, 80, None), 0, figures(200, 30, None)),
        ("a new session", Cumulative::default(), figures(7, 3, Some(0.1)), 10, figures(7, 3, Some(0.1))),
    ] {
        assert_eq!(after.since(&before, seen), used, "{name}");
    }
    let restored: Cumulative = serde_json::from_value(serde_json::to_value(first).unwrap()).unwrap();
    assert_eq!(restored, first);
    assert_eq!(serde_json::from_str::<Cumulative>("{}").unwrap(), Cumulative::default());
}

/// Step of one of several concurrent loops.
#[derive(Debug, Clone)]
enum AccountStep {
    Begin { looped: usize, likely: i64 },
    Turn { looped: usize, cost: i64 },
    End { looped: usize, lost: bool },
}

fn steps() -> impl Strategy<Value = Vec<AccountStep>> {
    let step = prop_oneof![
        (0..5_usize, 0..3_000_i64).prop_map(|(looped, likely)| AccountStep::Begin { looped, likely }),
        (0..5_usize, 0..TURN_MAX).prop_map(|(looped, cost)| AccountStep::Turn { looped, cost }),
        (0..5_usize, any::<bool>()).prop_map(|(looped, lost)| AccountStep::End { looped, lost }),
    ];
    proptest::collection::vec(step, 0..120)
}

const TURN_MAX: i64 = 900;
const LOOP_LIMIT: Money = Money(5_000);
const DAY_LIMIT: Money = Money(12_000);

#[test]
fn purpose_is_limited_to_its_share() {
    let wide = account(1.0, 0.0, 50.0);
    let with = |of_purpose| CostAccounts { of_purpose, ..ledger(wide, wide, wide) };
    assert!(matches!(with(account(0.02, 0.01, 0.05)).permit(usd(0.02), NOON), Permit::Yes { .. }));
    let Permit::No(reached) = with(account(0.04, 0.0, 0.05)).permit(usd(0.02), NOON) else { panic!("it is used up") };
    assert_eq!((reached.scope, reached.free_at), (LimitScope::Purpose, None), "time does not lift it");
    assert!(matches!(with(account(0.0, 0.0, 0.05)).permit(usd(0.06), NOON), Permit::No(_)), "also of the first");
    assert!(reached.to_string().starts_with("the share of the loop's budget for such calls is $0.05"), "{reached}");
}

/// Ledger as a store would keep it: rows, and sums over rows. The repository of a loop is its number modulo 2.
#[derive(Default)]
struct Books {
    booked: BTreeMap<usize, Money>,
    open: BTreeMap<usize, Reservation>,
}

impl Books {
    fn ledger(&self, looped: usize) -> CostAccounts {
        let account = |limit: Money, counts: &dyn Fn(usize) -> bool| CostAccount {
            spent: sum(self.booked.iter().filter(|(other, _)| counts(**other)).map(|(_, money)| *money)),
            reserved: sum(self
                .open
                .iter()
                .filter(|(other, _)| counts(**other) && **other != looped)
                .map(|(_, r)| r.held())),
            limit: Some(limit),
        };
        CostAccounts {
            of_loop: account(LOOP_LIMIT, &|other| other == looped),
            of_repository: account(DAY_LIMIT, &|other| other % 2 == looped % 2),
            of_service: account(DAY_LIMIT, &|_| true),
            ..CostAccounts::default()
        }
    }

    fn settle(&mut self, looped: usize, ending: Ending) {
        if let Some(reservation) = self.open.remove(&looped) {
            let booked = self.booked.entry(looped).or_default();
            *booked = booked.plus(reservation.settle(ending));
        }
    }
}

fn sum(money: impl Iterator<Item = Money>) -> Money {
    money.fold(Money(0), Money::plus)
}

proptest! {
    #[test]
    fn limits_are_exceeded_by_at_most_one_turn_per_run(steps in steps()) {
        let mut books = Books::default();
        for step in steps {
            match step {
                AccountStep::Begin { looped, likely } if !books.open.contains_key(&looped) => {
                    if let Permit::Yes { reserve, .. } = books.ledger(looped).permit(Money(likely), NOON) {
                        prop_assert!(reserve >= Money(0) && reserve <= Money(likely));
                        books.open.insert(looped, Reservation::new(reserve, NOON));
                    }
                }
                AccountStep::Turn { looped, cost } => {
                    let Some(reservation) = books.open.get(&looped).copied() else { continue };
                    let shown = reservation.shown.unwrap_or_default().plus(Money(cost));
                    let ledger = books.ledger(looped);
                    books.open.insert(looped, reservation.showing(shown));
                    if ledger.goes_on(shown, NOON).is_err() {
                        books.settle(looped, Ending::Cost(shown));
                    }
                }
                AccountStep::End { looped, lost } => {
                    let shown = books.open.get(&looped).and_then(|r| r.shown).unwrap_or_default();
                    books.settle(looped, if lost { Ending::Lost { at_least: Money(0) } } else { Ending::Cost(shown) });
                }
                AccountStep::Begin { .. } => {}
            }
            for (looped, booked) in &books.booked {
                prop_assert!(*booked >= Money(0));
                // Of a loop there is one run at a time, and so one turn.
                prop_assert!(booked.0 < LOOP_LIMIT.0 + TURN_MAX, "loop {looped}: {booked:?}");
            }
            let service = sum(books.booked.values().copied()).plus(sum(books.open.values().map(Reservation::held)));
            prop_assert!(service.0 <= DAY_LIMIT.0 + 5 * TURN_MAX, "{service:?}");
        }
    }

    #[test]
    fn usage_of_runs_adds_up_to_session_total(
        steps in proptest::collection::vec((0..9_000_u64, 0..9_000_u64, 0..9_000_i64), 1..20),
        seen in any::<u64>(),
    ) {
        let (mut before, mut sum) = (Cumulative::default(), Cumulative::default());
        for (input, output, cost) in steps {
            let usage = before.usage.plus(TokenUsage { input, output, ..TokenUsage::default() });
            let after = Cumulative { usage, cost: Some(Money(before.cost.unwrap_or_default().0 + cost)) };
            let used = after.since(&before, input + output);
            sum = Cumulative {
                usage: sum.usage.plus(used.usage),
                cost: Some(sum.cost.unwrap_or_default().plus(used.cost.unwrap_or_default())),
            };
            let any = after.since(&before, seen);
            prop_assert!(any.usage.total() <= after.usage.total() && any.cost <= after.cost && any.cost >= Some(Money(0)));
            before = after;
        }
        prop_assert_eq!(sum, before);
    }

    #[test]
    fn any_sums_do_not_panic(figures in any::<[i64; 8]>(), now in any::<i64>()) {
        let account = |i: usize| CostAccount {
            spent: Money(figures[i]), reserved: Money(figures[i + 1]), limit: Some(Money(figures[i + 2])),
        };
        let ledger = ledger(account(0), account(2), account(4));
        let _ = ledger.permit(Money(figures[7]), Timestamp(now));
        let _ = ledger.goes_on(Money(figures[6]), Timestamp(now));
        let _ = likely_cost(&figures.map(Money));
        let _ = Reservation::new(Money(figures[0]), Timestamp(now)).showing(Money(figures[1])).settle(Ending::Lost { at_least: Money(0) });
    }
}

#[test]
fn days_are_counted_from_1970() {
    for (text, number) in [("1970-01-01", 0), ("1970-01-02", 1), ("2024-02-29", 19_782), ("2026-11-26", 20_783)] {
        assert_eq!(day_of_date(text), Some(number), "{text}");
        assert_eq!(date_of(number), text);
    }
    for text in ["", "yesterday", "2026-02-30", "1969-12-31", "9999-01-01", "2026-11"] {
        assert_eq!(day_of_date(text), None, "{text}");
    }
    assert_eq!(date_of(i64::MAX), i64::MAX.to_string());
}
