//! What must hold in every state, and the model as the checker walks it.

use stateright::{Model, Property};

use crate::effect::{Protocol, Status, World};
use crate::normal::normal;
use crate::step::{Step, candidates};
use crate::{AT_MOST_ONCE, NOTHING_LOST};

/// Steps that one tick of a fair run may take, and all of it. A healthy run needs a fraction.
const STEPS_IN_A_TICK: usize = 30;
const STEPS_OF_A_RUN: usize = 600;

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![normal(self, World::start(self.faults))]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        actions.extend(candidates(world));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        self.step(world, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AT_MOST_ONCE, |_, world: &World| world.applied <= 1),
            Property::always(NOTHING_LOST, |_, world: &World| !world.passed || world.is_closed()),
            Property::always("what is done was applied", |_, world: &World| {
                let done = world.row.is_some_and(|row| row.status == Status::Done);
                !done || world.applied > 0
            }),
            Property::always("once faults stop, the effect comes to an end", ends),
            Property::sometimes("the effect is done and passed", |_, world: &World| {
                world.passed && world.row.is_some_and(|row| row.status == Status::Done)
            }),
        ]
    }
}

/// One fair run without faults: whoever can do something does, and then time goes on.
fn ends(protocol: &Protocol, world: &World) -> bool {
    let mut world = world.clone();
    // Whoever is dead by then may be told so.
    world.left.deaths = 3;
    let mut in_a_tick = 0;
    let mut walked = Vec::new();
    for _ in 0..STEPS_OF_A_RUN {
        let mut ending = protocol.ending.lock().unwrap();
        if (world.passed && world.is_closed()) || ending.contains(&world) {
            ending.extend(walked);
            return true;
        }
        drop(ending);
        walked.push(world.clone());
        let healthy = candidates(&world).into_iter().filter(|step| step.is_healthy());
        let (urgent, rest): (Vec<Step>, Vec<Step>) =
            healthy.filter(|step| *step != Step::Tick).partition(|step| {
                matches!(step, Step::Beat(_) | Step::Send(_) | Step::Land(_) | Step::Hear(_))
            });
        let mut taken = urgent.iter().chain(&rest).find_map(|step| protocol.step(&world, *step));
        if in_a_tick >= STEPS_IN_A_TICK || taken.is_none() {
            in_a_tick = 0;
            taken = protocol.step(&world, Step::Tick).or(taken);
        }
        in_a_tick += 1;
        match taken {
            Some(next) => world = next,
            None => return false,
        }
    }
    false
}
