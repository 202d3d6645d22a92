// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Attacks composed of lies at random, and those that do the most harm to honest VMs.
use std::{collections::BTreeMap, fs, path::Path};

use ccc_lab::{random::Rng, scenario::Scenario};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    lies::Lies,
    path::Nanos,
    setup::{Setup, SetupError},
    world,
};

const DURATION_S: u64 = 60;
/// What is there at the beginning belongs to slow start.
const BEGIN_S: usize = 5;
const INTERVAL_NS: Nanos = 1_000_000_000;
const FLOWS: u32 = 4;
/// After this part of the runs, percent, the worst so far are changed a little.
const RANDOM_PERCENT: u64 = 50;
/// So many of the worst are kept; simplified, some of them are the same.
const WORST: usize = 12;
/// So many of those are written.
const MOST_FOUND: usize = 3;
/// A simpler attack that does so much of the harm takes a worse one's place.
const SIMPLER: f64 = 0.95;

/// What each lie may be, and how many of a hundred attacks tell it.
const CHOICES: [(&str, u64, &[u32]); 17] = [
    ("mss", 10, &[100, 9000, 65535]),
    ("rtt_us", 20, &[1, 1000, 50_000, 300_000, 1_000_000, 10_000_000]),
    ("min_rtt_us", 15, &[1, 1000, 50_000, 150_000, 300_000, 10_000_000]),
    ("acked", 15, &[2, 10, 1000]),
    ("slow_start", 10, &[1]),
    ("mute", 15, &[1]),
    ("deaf", 15, &[1]),
    ("slots", 70, &[1, 2, 16, 128]),
    ("ms", 80, &[10, 20, 50, 100, 150, 200, 300, 500, 1000, 2000, 5000]),
    ("loss", 50, &[1]),
    ("beta", 50, &[0, 19_660, 45_000, 57_344, 65_535]),
    ("undo", 25, &[1]),
    ("growth_bytes", 20, &[1448, 14_480, 144_800, 1 << 30]),
    ("inflight_bytes", 25, &[14_480, 144_800, 1 << 24, 1 << 30]),
    ("priority", 30, &[256, 2560]),
    ("return", 20, &[1]),
    ("limited", 20, &[1]),
];
const FLOW_COUNTS: [u32; 4] = [1, 2, 4, 16];
/// A VM of two others can be a majority of what is believed.
const HONEST_VMS: [usize; 2] = [2, 3];
/// Rates of a link that the liar has before the bottleneck, Mbit/s, and how many of a hundred have one.
const LINKS_MBIT: [u32; 3] = [1, 2, 4];
const LINK_PERCENT: u64 = 15;
const LINK_PACKETS: u32 = 50;

/// A VM that lies, and beside whom.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attack {
    lies: Lies,
    flows: u32,
    link_mbit: Option<u32>,
    honest: usize,
}

/// What it does.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Harm {
    /// What honest VMs have of what they have beside one more honest one.
    pub kept: f64,
    /// What the attacker has of an honest VM's.
    pub taken: f64,
    /// Segments dropped, percent.
    pub loss_percent: f64,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
struct Aim {
    name: &'static str,
    /// The attacker does as it is told.
    obeys: bool,
    harm: fn(&Harm) -> f64,
}

const AIMS: [Aim; 4] = [
    Aim { name: "goodput", obeys: true, harm: |harm| 1.0 - harm.kept },
    Aim { name: "share", obeys: true, harm: |harm| harm.taken },
    Aim { name: "loss", obeys: true, harm: |harm| harm.loss_percent },
    Aim { name: "deaf", obeys: false, harm: |harm| 1.0 - harm.kept },
];

/// An attack that was found.
#[derive(Debug, Serialize)]
pub struct Found {
    /// What it was looked for.
    pub aim: &'static str,
    /// The parameters of its module.
    pub options: String,
    /// Its flows.
    pub flows: u32,
    /// The rate of its own link before the bottleneck, Mbit/s.
    pub link_mbit: Option<u32>,
    /// How many honest VMs are beside it.
    pub honest: usize,
    /// What it does in the model.
    pub harm: Harm,
    /// The scenario's file.
    pub file: String,
}

impl Attack {
    fn drawn(rng: &mut Rng) -> Attack {
        let honest = HONEST_VMS[(rng.next_u64() % HONEST_VMS.len() as u64) as usize];
        let mut attack = Attack { lies: Lies::default(), flows: FLOWS, link_mbit: None, honest };
        for (name, percent, values) in CHOICES {
            if rng.next_u64() % 100 < percent {
                attack.set(name, pick(rng, values));
            }
        }
        if rng.next_u64() % 4 == 0 {
            attack.flows = pick(rng, &FLOW_COUNTS);
        }
        if rng.next_u64() % 100 < LINK_PERCENT {
            attack.link_mbit = Some(pick(rng, &LINKS_MBIT));
        }
        attack
    }

    /// The same with one or two lies drawn anew.
    fn changed(&self, rng: &mut Rng) -> Attack {
        let mut attack = self.clone();
        for _ in 0..=rng.next_u64() % 2 {
            let (name, _, values) = CHOICES[(rng.next_u64() % CHOICES.len() as u64) as usize];
            attack.set(name, pick(rng, values));
        }
        attack
    }

    fn set(&mut self, name: &str, value: u32) {
        if let Some(field) = self.lies.field(name) {
            *field = value;
        }
    }

    /// Those with a lie less.
    fn simpler(&self) -> impl Iterator<Item = Attack> + '_ {
        let without = |(name, ..): (&str, u64, &[u32])| {
            let mut attack = self.clone();
            attack.set(name, Lies::default().field(name).map_or(0, |value| *value));
            attack
        };
        let usual = Attack { flows: FLOWS, ..self.clone() };
        let unlinked = Attack { link_mbit: None, ..self.clone() };
        CHOICES
            .into_iter()
            .map(without)
            .chain([usual, unlinked])
            .filter(move |attack| attack != self)
    }

    fn vm(&self) -> Value {
        let mut vm = json!({
            "flows": [{"count": self.flows}], "hostile": true,
            "module_options": self.lies.options(),
        });
        if let Some(rate_mbit) = self.link_mbit {
            vm["link"] = json!({"rate_mbit": rate_mbit, "limit_packets": LINK_PACKETS});
        }
        vm
    }
}

fn pick(rng: &mut Rng, values: &[u32]) -> u32 {
    values[(rng.next_u64() % values.len() as u64) as usize]
}

/// What VMs had of a run, the honest ones and the last; percent of the segments dropped.
type Outcome = ([f64; 2], f64);

/// A search, with what honest VMs have among themselves.
struct Search {
    seed: u64,
    /// By their number.
    honest: BTreeMap<usize, Outcome>,
    runs: u64,
    /// For each aim, the worst attacks, the worst one first.
    worst: [Vec<(Attack, Harm)>; AIMS.len()],
}

impl Search {
    fn new(seed: u64) -> Result<Search, SetupError> {
        let among = |honest| {
            let setup = Setup::of(&scenario("honest", seed, honest, &honest_vm()))?;
            Ok((honest, outcome(&setup, honest)))
        };
        let honest = HONEST_VMS.into_iter().map(among).collect::<Result<_, SetupError>>()?;
        Ok(Search { seed, honest, runs: 0, worst: Default::default() })
    }

    fn harm(&mut self, attack: &Attack) -> Result<Harm, SetupError> {
        self.runs += 1;
        let setup = Setup::of(&scenario("attack", self.seed, attack.honest, &attack.vm()))?;
        let ([honest, attacker], loss_percent) = outcome(&setup, attack.honest);
        let ([usual, share], _) = self.honest[&attack.honest];
        Ok(Harm { kept: honest / usual, taken: attacker / share, loss_percent })
    }

    fn judge(&mut self, attack: &Attack) -> Result<(), SetupError> {
        let harm = self.harm(attack)?;
        for (aim, worst) in AIMS.iter().zip(&mut self.worst) {
            let known = worst.iter().any(|(other, _)| other == attack);
            if known || aim.obeys && attack.lies.deaf != 0 {
                continue;
            }
            worst.push((attack.clone(), harm));
            worst.sort_by(|(_, a), (_, b)| (aim.harm)(b).total_cmp(&(aim.harm)(a)));
            worst.truncate(WORST);
        }
        Ok(())
    }

    /// Drops the lies of a found attack that do little.
    fn simplified(
        &mut self,
        aim: &Aim,
        found: (Attack, Harm),
    ) -> Result<(Attack, Harm), SetupError> {
        let least = (aim.harm)(&found.1) * SIMPLER;
        let mut simplest = found;
        'simpler: loop {
            for attack in simplest.0.clone().simpler() {
                let harm = self.harm(&attack)?;
                if (aim.harm)(&harm) >= least {
                    simplest = (attack, harm);
                    continue 'simpler;
                }
            }
            return Ok(simplest);
        }
    }

    /// The worst, simplified, each once.
    fn distinct(
        &mut self,
        aim: &Aim,
        worst: Vec<(Attack, Harm)>,
    ) -> Result<Vec<(Attack, Harm)>, SetupError> {
        let mut distinct: Vec<(Attack, Harm)> = Vec::new();
        for found in worst {
            let simplest = self.simplified(aim, found)?;
            if distinct.iter().all(|(other, _)| *other != simplest.0) {
                distinct.push(simplest);
            }
        }
        distinct.truncate(MOST_FOUND);
        Ok(distinct)
    }
}

fn honest_vm() -> Value {
    json!({"flows": [{"count": FLOWS}]})
}

fn scenario(name: &str, seed: u64, honest: usize, last: &Value) -> Scenario {
    let mut vms = vec![honest_vm(); honest];
    vms.push(last.clone());
    let all = json!({
        "name": name, "seed": seed, "duration_s": DURATION_S, "coupled": true, "daemon": "none",
        "hostile_module": "none", "vms": vms,
    });
    Scenario::parse(&all.to_string()).expect("a scenario that can be")
}

fn outcome(setup: &Setup, honest: usize) -> Outcome {
    let run = world::run(setup, true, INTERVAL_NS);
    let mut bytes = run.vm_bytes.iter().map(|vm| vm[BEGIN_S..].iter().sum::<u64>() as f64);
    let honest = bytes.by_ref().take(honest).sum();
    let (dropped, all) = (run.total_dropped() as f64, run.total_bytes() as f64);
    let delivered = all / f64::from(crate::path::MSS_BYTES);
    ([honest, bytes.sum()], 100.0 * dropped / (dropped + delivered))
}

/// Composes so many attacks, writes the worst into `out`.
pub fn search(runs: u64, seed: u64, out: &Path) -> Result<Vec<Found>, Box<dyn std::error::Error>> {
    let mut search = Search::new(seed)?;
    let mut rng = Rng(seed);
    while search.runs < runs {
        let aim = &search.worst[(rng.next_u64() % AIMS.len() as u64) as usize];
        let worst = (rng.next_u64() % WORST as u64) as usize;
        let attack = match aim.get(worst) {
            Some((attack, _)) if search.runs >= runs * RANDOM_PERCENT / 100 => {
                attack.changed(&mut rng)
            }
            _ => Attack::drawn(&mut rng),
        };
        search.judge(&attack)?;
    }
    fs::create_dir_all(out)?;
    let mut found = Vec::new();
    for (aim, worst) in AIMS.iter().zip(std::mem::take(&mut search.worst)) {
        for (rank, attack) in search.distinct(aim, worst)?.iter().enumerate() {
            found.push(written(aim, rank, attack, seed, out)?);
        }
    }
    let result = json!({"runs": runs, "seed": seed, "found": found});
    fs::write(out.join("result.json"), serde_json::to_string_pretty(&result)? + "\n")?;
    Ok(found)
}

fn written(
    aim: &Aim,
    rank: usize,
    (attack, harm): &(Attack, Harm),
    seed: u64,
    out: &Path,
) -> std::io::Result<Found> {
    let file = format!("{}-{}.json", aim.name, rank + 1);
    let name = format!("attack {} {}", aim.name, rank + 1);
    let scenario = scenario(&name, seed, attack.honest, &attack.vm());
    fs::write(out.join(&file), serde_json::to_string_pretty(&scenario)? + "\n")?;
    let options = attack.lies.options();
    let Attack { flows, link_mbit, honest, .. } = *attack;
    Ok(Found { aim: aim.name, options, flows, link_mbit, honest, harm: *harm, file })
}
