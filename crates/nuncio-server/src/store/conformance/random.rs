//! Random operations on a store and on a naive model agree.
//!
//! The steps come from a seeded generator. When store and model differ, steps that do not matter are removed
//! one by one, and the rest is reported.

mod make;
mod model;
mod run;
mod step;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rand::{SeedableRng as _, rngs::StdRng};

use self::{
    make::Run,
    run::{Agreed, StoreOwner},
    step::{Dice, RandomStep},
};
use super::{Handles, adopted, works};
use crate::store::Store;

const STEPS: usize = 40;

fn steps(seed: u64, number: usize) -> Vec<RandomStep> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut dice = Dice(&mut random);
    (0..number).map(|_| dice.step()).collect()
}

/// A few sequences, for every run of the tests; see [`sequences`] for more.
pub async fn random_operations_agree_with_a_naive_model(store: Arc<dyn Store>) {
    sequences(store, 0..25).await;
}

/// One sequence of random steps for each seed.
///
/// # Panics
/// If store and model differ: with the seed, the steps that matter, and the difference.
pub async fn sequences(store: Arc<dyn Store>, seeds: Range<u64>) {
    for seed in seeds {
        let steps = steps(seed, STEPS);
        if attempt(&store, &steps).await.is_err() {
            fail(&store, seed, steps).await;
        }
    }
}

/// Runs one sequence from the beginning, with names of its own.
async fn attempt(store: &Arc<dyn Store>, steps: &[RandomStep]) -> Agreed {
    static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
    let mut run = Run::new(format!("random-{}", ATTEMPTS.fetch_add(1, Ordering::Relaxed)));
    let owners: [StoreOwner; 1] = [(0, Arc::clone(store))];
    for step in steps {
        run.step(&owners, step).await?;
    }
    run.whole(&owners).await
}

/// Removes the steps that do not matter, and reports the rest.
async fn fail(store: &Arc<dyn Store>, seed: u64, mut steps: Vec<RandomStep>) {
    for place in (0..steps.len()).rev() {
        let mut fewer = steps.clone();
        fewer.remove(place);
        if attempt(store, &fewer).await.is_err() {
            steps = fewer;
        }
    }
    let difference = attempt(store, &steps).await.err();
    let difference = difference.as_deref().unwrap_or("it is gone when tried again");
    panic!("seed {seed}: {difference}\n{}", listed(&steps));
}

fn listed(steps: &[RandomStep]) -> String {
    steps.iter().map(|step| format!("  {step:?}\n")).collect()
}

/// Owners start and stop, one after the other.
pub async fn what_owners_leave_agrees_with_a_naive_model<H: Handles>(handles: &H) {
    generations(handles, 1).await;
}

/// Owners start and stop while others run.
pub async fn what_many_owners_do_agrees_with_a_naive_model<H: Handles>(handles: &H) {
    generations(handles, 2).await;
}

/// Runs random steps with this many owners at a time; then the first of them stops, and a new one adopts its
/// tasks.
async fn generations<H: Handles>(handles: &H, living: usize) {
    const SEQUENCES: u64 = 12;
    let mut runs: Vec<Run> = (0..SEQUENCES).map(|seed| Run::new(format!("left-{seed}"))).collect();
    let mut open: Vec<(usize, Arc<H::Handle>)> = Vec::new();
    for generation in 0..3 {
        while open.len() < living {
            let number = open.last().map_or(generation, |(last, _)| last + 1);
            open.push((number, handles.open().await));
        }
        let owners: Vec<StoreOwner> =
            open.iter().map(|(number, handle)| (*number, Arc::clone(handle) as Arc<dyn Store>)).collect();
        for (seed, run) in (0..).zip(&mut runs) {
            let seed = seed + SEQUENCES * generation as u64;
            let steps = steps(seed, STEPS);
            let agreed = generation_of(run, &owners, generation.checked_sub(1), &steps).await;
            let difference = agreed.err().unwrap_or_default();
            assert_eq!(difference, "", "seed {seed} of {} owners\n{}", owners.len(), listed(&run.done));
        }
        drop(owners);
        handles.die(open.remove(0).1).await;
    }
}

/// The newest owner adopts the tasks of a stopped one; then all run these steps.
async fn generation_of(
    run: &mut Run,
    owners: &[StoreOwner],
    gone: Option<usize>,
    steps: &[RandomStep],
) -> Agreed {
    if let (Some(gone), Some((heir, store))) = (gone, owners.last()) {
        let mut orphans = Vec::new();
        let left =
            |run: &Run| run.model.tasks.iter().filter(|known| known.owner == gone && known.is_left()).count();
        while orphans.len() < left(run) {
            orphans.extend(adopted(&**store, &run.agent, 3).await);
        }
        orphans.extend(works(store.adopt(&run.agent, 3).await));
        run.adopted(*heir, gone, &orphans)?;
    }
    run.whole(owners).await?;
    for step in steps {
        run.step(owners, step).await?;
    }
    run.whole(owners).await
}
