"""The eleven categories of seed tasks (RMSWeb, "Seed tasks")."""

from __future__ import annotations

# Name and, for whoever sorts a task, what belongs there.
CATEGORIES: dict[str, str] = {
    "E-Commerce": "products: finding, comparing, filtering, carts, order policies",
    "Travel & Hospitality": "flights, hotels, trains, car hire, sights, itineraries",
    "Government": "public services, laws, permits, taxes, statistics, libraries and parks",
    "Entertainment & Gaming": "films, music, games, sport, events, tickets, recipes and hobbies",
    "Health": "conditions, medicines, providers, fitness, nutrition",
    "Corporate & Careers": "companies, their products and people, jobs, business software",
    "Finance": "banking, markets, insurance, currencies, calculators of money",
    "Education": "courses, schools, papers, reference works, documentation",
    "Real Estate": "homes and rooms to buy or rent, prices of homes, mortgages of a home",
    "Local & Home Services": "restaurants, shops, repairs and services near a place, vehicles",
    "Other": "whatever fits nowhere else",
}
