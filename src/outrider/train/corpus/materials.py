"""Texts that extraction, editing and reasoning prompts work on, composed from word lists by a seeded generator.

Every function takes a `random.Random` and returns one text; the same generator state gives the same text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_NAMES = (
    "Ada Novak", "Ben Okafor", "Clara Ruiz", "David Chen", "Elif Kaya", "Farid Haddad", "Greta Lind", "Hugo Martin",
    "Ines Costa", "Jonas Weber", "Keiko Sato", "Liam Byrne", "Maya Singh", "Nils Berg", "Olga Petrova", "Paul Mensah",
    "Rosa Marino", "Sam Taylor", "Tara Wells", "Viktor Horvat",
)  # fmt: skip
_CITIES = (
    "Lisbon",
    "Oslo",
    "Nairobi",
    "Osaka",
    "Boston",
    "Krakow",
    "Lima",
    "Perth",
    "Dublin",
    "Turin",
    "Hanoi",
    "Quito",
)
_JOBS = (
    "nurse",
    "carpenter",
    "pilot",
    "teacher",
    "designer",
    "plumber",
    "biologist",
    "baker",
    "translator",
    "engineer",
)
_GOODS = ("desk lamp", "office chair", "water bottle", "rain jacket", "keyboard", "coffee grinder", "tent", "backpack",
          "bread knife", "phone case", "wool blanket", "bicycle pump")  # fmt: skip
_MONTHS = ("January", "March", "April", "June", "July", "September", "October", "December")
_TASKS = (
    "send the new price list",
    "book a room for the workshop",
    "call the printer",
    "check the heating bill",
    "update the web page",
    "collect answers to the survey",
    "order more paper",
    "write to the landlord",
)
_FRUIT = ("apples", "pears", "plums", "oranges", "lemons", "figs", "peaches", "bananas")

_PASSAGES: dict[str, tuple[str, ...]] = {
    "the town library": (
        "The town library opened in 1911 in a former grain store.",
        "Its reading room still has the old wooden beams and a stove that is no longer used.",
        "About four hundred people visit on an ordinary Saturday.",
        "Last year the library lent more audio books than printed novels for the first time.",
        "A volunteer repairs damaged covers every Tuesday.",
        "The council plans to add a small room for film evenings.",
        "Some neighbours fear that the new room will bring noise.",
        "Opening hours will be longer from the first of May.",
    ),
    "a mountain railway": (
        "The mountain railway climbs nine hundred metres in forty minutes.",
        "It was built by local miners who had lost their work.",
        "The carriages are painted green so that they disappear against the forest.",
        "In winter a plough clears the track before the first train.",
        "Most passengers are hikers who walk back down.",
        "The steepest part has a toothed rail between the two normal ones.",
        "A ticket costs less on weekdays.",
        "The oldest engine runs only on the last Sunday of each month.",
    ),
    "honey bees": (
        "A honey bee colony can hold fifty thousand workers in summer.",
        "Workers change jobs as they age, from cleaning cells to guarding the entrance.",
        "They show each other good flowers by dancing on the comb.",
        "The queen lays up to two thousand eggs on a warm day.",
        "In winter the bees form a cluster and shiver to keep warm.",
        "Pesticides and mites are the greatest dangers to a colony.",
        "A single bee makes only a small spoon of honey in its life.",
        "Many fruit growers rent hives in spring.",
    ),
    "a new bakery": (
        "The bakery on Mill Street opened its doors three weeks ago.",
        "Its owner used to work as a sound engineer and learned baking from her aunt.",
        "She starts at two in the morning so that the first loaves are ready at six.",
        "The rye bread sells out before nine on most days.",
        "Flour comes from a mill twelve kilometres away.",
        "Prices are a little higher than in the supermarket.",
        "Children may watch the dough machine through a window.",
        "From autumn on there will be evening courses.",
    ),
    "electric buses": (
        "The city has replaced sixty diesel buses with electric ones.",
        "Drivers say that the new buses are quieter and accelerate more smoothly.",
        "Each bus charges for six minutes at the end of the line.",
        "On very cold days the range falls by about a third.",
        "Passengers complained at first that they could not hear the bus coming.",
        "The old buses were sold to a company that turns them into holiday homes.",
        "The whole project cost eighteen million.",
        "Two more lines will follow next year.",
    ),
    "a school garden": (
        "Pupils of the valley school look after a garden of six raised beds.",
        "Each class chooses its own plants and keeps a diary.",
        "Last summer slugs ate nearly all of the lettuce.",
        "The children built a small hotel for hedgehogs in response.",
        "Vegetables that are not eaten at school go to a food bank.",
        "A retired gardener visits on Thursdays and answers questions.",
        "Rain is collected in three large barrels.",
        "The headteacher says that mathematics lessons outside are calmer.",
    ),
}  # fmt: skip


def passage(rng: random.Random) -> str:
    """A paragraph of four to seven sentences on one subject."""
    sentences = rng.choice(sorted(_PASSAGES.items()))[1]
    keep = sorted(rng.sample(range(len(sentences)), rng.randint(4, 7)))
    return " ".join(sentences[i] for i in keep)


def profile(rng: random.Random) -> str:
    """Two or three sentences about a person with facts to pull out."""
    name, city, job = rng.choice(_NAMES), rng.choice(_CITIES), rng.choice(_JOBS)
    age, years = rng.randint(21, 66), rng.randint(1, 19)
    start = f"{name} is a {age}-year-old {job} who lives in {city}."
    middle = f" {name.split()[0]} has worked there for {years} years"
    mail = f"{name.lower().replace(' ', '.')}@example.org"
    return (
        start
        + middle
        + rng.choice((".", f" and can be reached at {mail}.", f"; the office is in {rng.choice(_CITIES)}."))
    )


def order(rng: random.Random) -> str:
    """A short message about an order with items, prices and a date."""
    lines = [
        f"{rng.randint(1, 5)} x {item} at {rng.randint(5, 90)}.{rng.choice(('00', '50', '95'))} each"
        for item in rng.sample(_GOODS, rng.randint(2, 4))
    ]
    when = f"{rng.randint(1, 28)} {rng.choice(_MONTHS)}"
    return (
        f"Order {rng.randint(10000, 99999)} for {rng.choice(_NAMES)}, delivery to {rng.choice(_CITIES)} on {when}: "
        + "; ".join(lines)
        + "."
    )


def minutes(rng: random.Random) -> str:
    """Notes of a meeting with owners and dates."""
    people = rng.sample(_NAMES, 3)
    tasks = rng.sample(_TASKS, 3)
    lines = [
        f"- {p} will {t} by {rng.randint(2, 28)} {rng.choice(_MONTHS)}." for p, t in zip(people, tasks, strict=True)
    ]
    return "Meeting notes\n" + "\n".join(lines)


def word_problem(rng: random.Random) -> str:
    """An arithmetic problem in words."""
    a, b, c = rng.randint(3, 48), rng.randint(2, 12), rng.randint(2, 9)
    name, fruit = rng.choice(_NAMES).split()[0], rng.choice(_FRUIT)
    return rng.choice((
        f"{name} has {a * c} {fruit} and packs them into boxes of {c}. How many boxes are needed?",
        f"A ticket costs {b} euros. A group of {c} children and {b} adults buys tickets. What do they pay together?",
        f"{name} buys {b} kilos of {fruit} at {c} euros a kilo and pays with a {b * c + a} euro voucher. What is left?",
        (f"A train leaves at {rng.randint(6, 11)}:{rng.choice(('05', '20', '40'))} and travels {a + 40} kilometres "
        f"at {b * 10} kilometres an hour. How long does it take?"),
        f"A tank holds {a * 10} litres. It loses {c} litres an hour. How much is left after {b} hours?",
        (f"{name} reads {a} pages on Monday and {c} pages more on each following day. "
        f"How many pages is that by {rng.choice(('Thursday', 'Friday', 'Saturday'))}?"),
        (f"In a class of {a + 10} pupils, {c} play the piano and {b} play football; {min(b, c) - 1} do both. "
        f"How many do neither?"),
        f"A rectangle is {a} metres long and {b} metres wide. What are its area and its perimeter?",
        f"What is {a} percent of {b * 100}? Show your steps.",
        f"Solve for x: {b}x + {a} = {a + b * c}.",
    ))  # fmt: skip


def puzzle(rng: random.Random) -> str:
    """A small logic question."""
    x, y, z = (n.split()[0] for n in rng.sample(_NAMES, 3))
    first, step = rng.randint(1, 30), rng.randint(2, 9)
    return rng.choice((
        f"{x} is older than {y}. {z} is younger than {y}. Who is the youngest?",
        f"If all {rng.choice(_FRUIT)} in a basket are ripe and {x} took one from the basket, is it ripe? Explain.",
        f"{x} sits left of {y}, and {z} sits right of {y}. Who sits in the middle?",
        (f"Yesterday was {rng.choice(('Monday', 'Wednesday', 'Friday', 'Sunday'))}. "
        f"What day will it be in {rng.randint(3, 12)} days?"),
        f"What comes next: {first}, {first + step}, {first + 2 * step}, {first + 3 * step}? Explain the rule.",
        f"{x}, {y} and {z} finish a race. {y} is not first, {z} is last. Who wins?",
        (f"A farmer has {rng.randint(10, 30)} animals, chickens and cows, with {rng.randint(25, 45) * 2} legs. "
        "How do you find out how many of each there are?"),
    ))  # fmt: skip


MATERIALS: dict[str, Callable[[random.Random], str]] = {
    "passage": passage,
    "profile": profile,
    "order": order,
    "minutes": minutes,
    "word_problem": word_problem,
    "puzzle": puzzle,
}
