"""Captchas, refusals and login walls are distinguished from pages that only mention them."""

import pytest

from collection.environments.blockers import find_blocker

URL = "https://shop.test/lamps"
TEXT_FIELD = "[1]<input id=q type=text />\n"

CAPTCHAS = (
    (URL, "Robot or human?", "Activate and hold the button to confirm that you’re human. Thank You!", 200),
    (URL, "Nur einen Moment...", "", 403),
    (URL, "Laden", "Bitte bestätigen Sie, dass Sie kein Roboter sind.", 200),
    (URL, "Boutique", "Vérifiez que vous êtes humain", 200),
    (URL, "Tienda", "No soy un robot", 200),
    (URL, "Just a moment...", "Enable JavaScript and cookies to continue", 403),
    (URL, "Just a moment…", "", 503),
    (URL, "Attention Required! | Cloudflare", "Please complete the security check to access shop.test", 403),
    (URL, "Robot Check", "Type the characters you see in this image:\n[1]<input id=captcha />", 200),
    (URL, "Shop", "Verify you are human\nby completing the action below.", 200),
    (URL, "Shop", "Please verify that you're not a robot.\n[1]<button />\n\tContinue", 200),
    (URL, "", "Press & Hold to confirm you are\na human (and not a bot).", 200),
    (URL, "Access to this page has been denied", "Press and hold the button", 403),
    (URL, "Pardon Our Interruption", "As you were browsing something made us think you were a bot.", 200),
    ("https://www.google.com/sorry/index?continue=x", "https://www.google.com/search?q=lamp", "", 429),
    (URL, "Search", "Our systems have detected unusual traffic from your computer network.", 429),
    ("https://geo.captcha-delivery.com/captcha/?id=1", "shop.test", "", 200),
    ("https://shop.test/captcha?next=%2F", "Shop", "Slide to complete the puzzle", 200),
    (URL, "shop.test", "|IFRAME|<iframe title=DataDome CAPTCHA src=captcha-delivery />", 403),
    (URL, "Checking", "[1]<iframe title=Widget containing a Cloudflare security challenge />", 403),
    (URL, "Shop", "Checking your browser before accessing shop.test.", 503),
    (URL, "Shop", "Select all images with\ntraffic lights", 200),
    (URL, "Security Check", "Enter the code shown below\n[1]<input id=code />", 200),
)
REFUSALS = (
    (URL, "Zugriff verweigert", "Fehler 15", 200),
    (URL, "Accès refusé", "", 200),
    (URL, "Acceso denegado", "", 200),
    (URL, "403 Forbidden", "nginx", 403),
    (URL, "Access Denied", "You don't have permission to access this server.\nReference #18.7a.1", 403),
    (URL, "Shop", "Sorry, you have been blocked", 403),
    (URL, "", "", 403),
    (URL, "", "", 429),
    (URL, "Too Many Requests", "Slow down.", 429),
    (URL, "Request Rejected", "The requested URL was rejected. Please consult with your administrator.", 200),
    (URL, "Shop", "Access to this site has been blocked from your region.", 200),
    (URL, "Shop", "Your IP address has been temporarily blocked due to automated requests.", 200),
    (URL, "Shop", "We noticed some suspicious activity from your network.", 200),
    (URL, "Shop", "This content is not available in your country.", 451),
    (URL, "Shop", "Automated access to this page is not allowed.", 200),
    ("https://www.linkedin.com/company/x", "", "", 999),
    (URL, "Unauthorized", "", 401),
)
LOGINS = (
    ("https://shop.test/login?next=/cart", "Shop", f"{TEXT_FIELD}[2]<input id=p type=password />", 200),
    (URL, "Sign in - Shop", f"{TEXT_FIELD}[2]<input id=p type=password />\n[3]<button />\n\tSign in", 200),
    (URL, "Shop", f"Please log in to continue.\n{TEXT_FIELD}[2]<input type=password />", 200),
    (URL, "Log in", f"Please log in.\n{TEXT_FIELD}[2]<input type=password />", 401),
    (URL, "Member", "Sign in to view this profile\n[1]<a />\n\tSign in", 200),
    (URL, "Article", "You must be logged in to read this.", 200),
)
USABLE = (
    (URL, "Lamps", f"{TEXT_FIELD}Green lamp\n12 EUR\n[2]<button />\n\tAdd to cart", 200),
    (URL, "Lamps", "Green lamp", None),
    ("about:blank", "", "", None),
    (URL, "Page not found", "404: there is no such page.", 404),
    (URL, "Error", "Something went wrong. Try again.", 500),
    (URL, "Down for maintenance", "We will be back at noon.", 503),
    # A widget in a form of its own is no door.
    (
        URL,
        "Contact us",
        f"{TEXT_FIELD}[2]<textarea id=message />\n[3]<input id=mail type=email />\nI'm not a robot",
        200,
    ),
    # Talking of them at length.
    (
        URL,
        "How captchas work",
        "Verify you are human. " + "A captcha tells people and programs apart. " * 90,
        200,
    ),
    (URL, "HTTP 403 explained", "A 403 Forbidden answer means... " + "The server refuses. " * 200, 200),
    (URL, "API reference", "Requests beyond the rate limit are answered with status 429.", 200),
    (URL, "Access denied: a novel", "A novel of 1999. " * 250, 200),
    # Consent can be answered.
    (URL, "Shop", "We use cookies\nAccept all cookies\n[1]<button />\n\tReject all", 200),
    (URL, "Before you continue to Search", "Before you continue\n[1]<button />\n\tAccept all", 200),
    # A form is not yet a wall.
    (URL, "Shop", f"{TEXT_FIELD}[2]<a href=/login />\n\tSign in\nGreen lamp 12 EUR", 200),
    ("https://shop.test/login", "Welcome", "You are logged in. Your orders: none", 200),
    (URL, "Register", f"{TEXT_FIELD}[2]<input type=password />\n[3]<button />\n\tCreate an account", 200),
    (URL, "Captain's cabin", "A room with a view of the sea", 200),
    ("https://shop.test/recaptcha-alternatives-for-shops", "Alternatives", "Five ways to keep bots out", 200),
)


@pytest.mark.parametrize(
    ("page", "kind"),
    [(page, "captcha") for page in CAPTCHAS]
    + [(page, "blocked") for page in REFUSALS]
    + [(page, "login") for page in LOGINS],
)
def test_blocking_pages_are_found(page, kind):
    found = find_blocker(*page)
    assert found is not None and found.kind == kind, found
    assert found.reason and "\n" not in found.reason and len(found.reason) < 150


@pytest.mark.parametrize("page", USABLE)
def test_usable_pages(page):
    assert find_blocker(*page) is None


def test_only_closed_doors_are_outcomes():
    outcomes = [find_blocker(*pages[0]).outcome for pages in (CAPTCHAS, REFUSALS, LOGINS)]
    assert outcomes == ["captcha", "blocked", None]


def test_a_long_page_is_searched_by_its_address_only():
    text = "Verify you are human. " * 1000
    assert find_blocker(URL, "Robot Check", text, 200) is None
    assert find_blocker("https://shop.test/showcaptcha", "x", text, 200).kind == "captcha"
