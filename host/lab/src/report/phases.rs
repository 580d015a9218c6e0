// SPDX-License-Identifier: Apache-2.0

//! What a start consists of, as the guest reports it: a bar of pieces for each service.

use super::bars::ticks;
use super::model::{Group, Key, Model};
use super::panels::{WIDE, figure};
use super::svg::{Anchor, Axis, Svg, slot, width};
use super::verdict::place;
use super::words;

/// Figures of phases begin with this and end in `_ms`.
const PREFIX: &str = "boot_";
/// Phases in the order in which they happen; others come after these.
const ORDER: [&str; 8] = [
    "memory", "clock", "bundle", "devices", "network", "files", "cpus", "program",
];
/// All of them together.
const WHOLE: &str = "kernel";
/// What the guest cannot see: from the command to the kernel, and from the program's start to the answer.
const OUTSIDE: &str = "VMM and program";

struct Stack {
    label: String,
    platform: String,
    phases: Vec<(String, f64)>,
}

/// The plot of a group, if any of its platforms reports phases.
pub(super) fn draw(out: &mut String, model: &Model<'_>, group: &Group) {
    let stacks = collect(model, group);
    if stacks.is_empty() {
        return;
    }
    let title = "Start to first answer, by phase";
    let note = "medians; the kernel's phases as the guest reports them, in order, and the rest as seen from outside";
    figure(out, title, note, &plot(title, note, &stacks));
}

fn collect(model: &Model<'_>, group: &Group) -> Vec<Stack> {
    let mut stacks: Vec<(Key, Stack)> = Vec::new();
    for row in &group.rows {
        let phase = row
            .key
            .metric
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_suffix("_ms"));
        let Some(phase) = phase else { continue };
        let key = Key {
            metric: String::new(),
            ..row.key.clone()
        };
        for (platform, cell) in group.platforms.iter().zip(&row.cells) {
            let Some(found) = &cell.estimate else {
                continue;
            };
            let part = (phase.to_owned(), found.median.max(0.0));
            match stacks
                .iter_mut()
                .find(|(known, stack)| *known == key && stack.platform == *platform)
            {
                Some((_, stack)) => stack.phases.push(part),
                None => stacks.push((
                    key.clone(),
                    Stack {
                        label: place(model, &key),
                        platform: platform.clone(),
                        phases: vec![part],
                    },
                )),
            }
        }
    }
    let mut out = Vec::new();
    for (key, mut stack) in stacks {
        let parts = stack.phases.iter().any(|(name, _)| name != WHOLE);
        stack.phases.retain(|(name, _)| !parts || name != WHOLE);
        stack.phases.sort_by_key(|(name, _)| {
            ORDER
                .iter()
                .position(|known| known == name)
                .unwrap_or(ORDER.len())
        });
        let inside: f64 = stack.phases.iter().map(|(_, ms)| ms).sum();
        let answer = Key {
            metric: "first_answer_s".to_owned(),
            ..key
        };
        if let Some(answer) = model.estimate(&answer, &stack.platform) {
            stack
                .phases
                .push((OUTSIDE.to_owned(), (answer.median * 1e3 - inside).max(0.0)));
        }
        out.push(stack);
    }
    out
}

fn plot(title: &str, note: &str, stacks: &[Stack]) -> String {
    const BAR: f64 = 18.0;
    let total = |stack: &Stack| stack.phases.iter().map(|(_, ms)| ms).sum::<f64>();
    let most = stacks.iter().map(total).fold(0.0, f64::max);
    let unit = words::unit("boot_ms", most);
    let axis = Axis::from_zero(unit.of(most), 4);
    let value_room = stacks
        .iter()
        .map(|stack| width(&unit.value(total(stack))) * 1.1)
        .fold(0.0, f64::max)
        + 10.0;
    let room = WIDE - value_room;
    let mut front = Svg::default();
    let mut y = 2.0;
    for stack in stacks {
        let label = if stack.label.is_empty() {
            stack.platform.clone()
        } else {
            format!("{}, {}", stack.platform, stack.label)
        };
        front.fitted(0.0, y + 13.0, Anchor::Start, "label", &label, WIDE);
        y += 19.0;
        let mut from = 0.0;
        for (index, (name, ms)) in stack.phases.iter().enumerate() {
            let (left, right) = (
                axis.at(unit.of(from)) * room,
                axis.at(unit.of(from + ms)) * room,
            );
            let class = format!("phase p{} c{}", index % 2, slot(&stack.platform));
            front.rect(
                &class,
                (left, y),
                (right - left, BAR),
                &format!("{name}: {}", unit.value(*ms)),
            );
            if width(name) + 6.0 < right - left {
                front.text(
                    f64::midpoint(left, right),
                    y + 13.0,
                    Anchor::Middle,
                    "",
                    name,
                );
            }
            from += ms;
        }
        front.text(WIDE, y + 13.0, Anchor::End, "value", &unit.value(from));
        y += BAR + 3.0;
        let list: Vec<String> = stack
            .phases
            .iter()
            .map(|(name, ms)| format!("{name}\u{a0}{}", unit.value(*ms)))
            .collect();
        for line in wrap(&list, WIDE) {
            y += 14.0;
            front.text(0.0, y, Anchor::Start, "soft", &line);
        }
        y += 14.0;
    }
    let mut out = Svg::default();
    ticks(&mut out, &axis, (0.0, room), y, &unit);
    out.group("front", &front);
    out.finish((WIDE, y + 24.0), title, note)
}

/// Entries with commas between, in as many lines as they need.
fn wrap(entries: &[String], room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for entry in entries {
        match lines.last_mut() {
            Some(line) if width(line) + width(entry) + 14.0 < room => {
                *line += ", ";
                *line += entry;
            }
            _ => lines.push(entry.clone()),
        }
    }
    lines
}
