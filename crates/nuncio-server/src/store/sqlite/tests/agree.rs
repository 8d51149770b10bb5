//! The outboxes of the SQLite store and of the memory store give the same results for the same calls.

use std::sync::Arc;

use nuncio_protocol::{Seq, TaskState};

use super::{fresh, webhook};
use crate::store::{
    Attempt, Commit, DeliveryId, DeliveryOutcome, DeliveryQuery, DeliveryState, Lease, Leased, Leases,
    MemoryStore, Redrive, Settled, Store, Then, Webhook,
    conformance::{Writer, at, creation, opening, scope},
};

/// Small pseudorandom numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one_of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize].clone()
    }
}

/// The comparable part of a lease. For equal targets and times, one store orders by uid and the other by
/// creation; here both orders are the same.
fn told(leases: &Leases) -> (String, Option<nuncio_protocol::Timestamp>) {
    (format!("{:?}", leases.leased), leases.next)
}

fn some_lease(dice: &mut Dice, now: i64, in_hand: &[Leased]) -> Lease {
    let targets: [Arc<str>; 4] = ["a:1".into(), "b:1".into(), "c:1".into(), "".into()];
    Lease {
        agents: vec!["agent".into()],
        now: at(now),
        after: dice.one_of(&targets),
        except: (0..dice.roll(2)).map(|_| dice.one_of(&targets)).collect(),
        in_hand: in_hand.iter().map(|leased| Arc::clone(&leased.webhook.uid)).collect(),
        limit: 1 + dice.roll(4) as usize,
        each: 1 + dice.roll(3) as usize,
        owed: 1 + dice.roll(3) as usize,
    }
}

fn some_outcome(dice: &mut Dice, leased: &Leased, now: i64) -> Settled {
    let tried = dice.roll(3) as usize;
    let mut outcome = |seq| DeliveryOutcome {
        seq,
        state: dice.one_of(&DeliveryState::ALL),
        attempt: Attempt { at: at(now), took: 1, status: Some(500), cause: None, error: None },
    };
    let outcomes = leased.owed.iter().take(tried).map(|owed| outcome(owed.seq)).collect();
    let then = match dice.roll(6) {
        0 => Then::Stop,
        1 => Then::Keep,
        _ => Then::Release(at(now + dice.roll(8) as i64)),
    };
    Settled { webhook: Arc::clone(&leased.webhook.uid), outcomes, then }
}

fn some_query(dice: &mut Dice) -> DeliveryQuery {
    DeliveryQuery {
        state: (dice.roll(2) == 0).then(|| dice.one_of(&DeliveryState::ALL)),
        task_id: (dice.roll(4) == 0).then(|| format!("t-{}", dice.roll(6)).as_str().into()),
        since: (dice.roll(4) == 0).then(|| at(dice.roll(40) as i64)),
        after: (dice.roll(3) == 0)
            .then(|| DeliveryId { webhook: format!("{:04}", dice.roll(60)).into(), seq: Seq(dice.roll(5)) }),
        limit: dice.roll(9) as usize,
        ..DeliveryQuery::default()
    }
}

/// Applies one step to both.
async fn step(dice: &mut Dice, now: i64, stores: &[Arc<dyn Store>; 2], in_hand: &mut Vec<Leased>) {
    let [one, other] = stores;
    let ann = scope("ann");
    let (task, hook) = (format!("t-{}", dice.roll(6)), format!("h-{}", dice.roll(3)));
    let id = task.as_str().into();
    let new = Webhook {
        id: hook.as_str().into(),
        target: dice.one_of(&["a:1", "b:1", "c:1"]).into(),
        ..webhook(&format!("{now:04}"))
    };
    match dice.roll(9) {
        0 => {
            let (a, b) = (
                one.put_webhook(&ann, &id, new.clone(), at(now)).await.unwrap(),
                other.put_webhook(&ann, &id, new, at(now)).await.unwrap(),
            );
            assert_eq!(a, b);
        }
        1 if dice.roll(4) == 0 => {
            let hook = hook.as_str().into();
            let dropped = one.delete_webhook(&ann, &id, &hook).await.unwrap();
            assert_eq!(dropped, other.delete_webhook(&ann, &id, &hook).await.unwrap());
        }
        1..4 => {
            let known = one.task(&ann, &id).await.unwrap();
            let with = (dice.roll(4) == 0).then_some(new);
            for store in stores {
                let entry = match &known {
                    None => opening(&ann, &task, None),
                    Some(known) => {
                        let writer = Writer::open(store, &ann, creation(&task, "c-1", 1), known.seq);
                        writer.entry(writer.status_event(TaskState::Working, now))
                    }
                };
                let entry =
                    Commit { push: true, at: at(now), ..entry }.attach(|to| to.webhook = with.clone());
                assert_eq!(store.commit(vec![entry]).await.unwrap(), [Ok(())]);
            }
        }
        4..6 => {
            let lease = some_lease(dice, now, in_hand);
            let (a, b) = (one.lease(&lease).await.unwrap(), other.lease(&lease).await.unwrap());
            assert_eq!(told(&a), told(&b), "{lease:?}");
            in_hand.extend(a.leased);
        }
        6..8 if !in_hand.is_empty() => {
            let leased = in_hand.swap_remove(dice.roll(in_hand.len() as u64) as usize);
            let settled = some_outcome(dice, &leased, now);
            if settled.then == Then::Keep {
                let left = leased.owed[settled.outcomes.len()..].to_vec();
                in_hand.push(Leased { owed: left, ..leased });
            }
            one.settle(vec![settled.clone()]).await.unwrap();
            other.settle(vec![settled]).await.unwrap();
        }
        8 => {
            let what = match dice.roll(3) {
                0 => Redrive::Dead { agent: None, since: at(dice.roll(60) as i64) },
                _ => Redrive::One(DeliveryId {
                    webhook: format!("{:04}", dice.roll(60)).into(),
                    seq: Seq(1 + dice.roll(5)),
                }),
            };
            let redriven = one.redrive(&what, at(now)).await.unwrap();
            assert_eq!(redriven, other.redrive(&what, at(now)).await.unwrap(), "{what:?}");
        }
        _ => in_hand.truncate(1),
    }
}

#[tokio::test]
async fn both_outboxes_agree() {
    for seed in 1..=8 {
        let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::default()), fresh().await];
        let (mut dice, mut in_hand) = (Dice(seed), Vec::new());
        for now in 0..120 {
            step(&mut dice, now, &stores, &mut in_hand).await;
            let query = some_query(&mut dice);
            let [one, other] = &stores;
            let (one, other) =
                (one.deliveries(&query).await.unwrap(), other.deliveries(&query).await.unwrap());
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "seed {seed}, step {now}: {query:?}");
        }
    }
}
