"""Ways in which a page can send a request by itself, each to a host of its own name."""

from __future__ import annotations

# Within one page; `%s` is the forbidden host's URL without a slash at its end.
PARTS = {
    "img": "<img src='%s/'>",
    "srcset": "<img srcset='%s/ 1x'>",
    "iframe": "<iframe src='%s/'></iframe>",
    "frame-location": "<iframe srcdoc=\"<script>location='%s/'</script>\"></iframe>",
    "frame-meta-refresh": "<iframe srcdoc=\"<meta http-equiv=refresh content='0;url=%s/'>\"></iframe>",
    "data-frame": "<iframe src=\"data:text/html,<img src='%s/'>\"></iframe>",
    "script": "<script src='%s/'></script>",
    "module": "<script type=module src='%s/'></script>",
    "stylesheet": "<link rel=stylesheet href='%s/'>",
    "css-import": "<style>@import url('%s/');</style>",
    "css-url": "<div style='width:9px;height:9px;background:url(%s/)'></div>",
    "font": "<style>@font-face{font-family:x;src:url('%s/')}</style><p style='font-family:x'>x</p>",
    "preload": "<link rel=preload as=image href='%s/'>",
    "modulepreload": "<link rel=modulepreload href='%s/'>",
    "icon": "<link rel=icon href='%s/'>",
    "manifest": "<link rel=manifest href='%s/'>",
    "video": "<video src='%s/' preload=auto></video>",
    "audio": "<audio src='%s/' preload=auto></audio>",
    "poster": "<video poster='%s/'></video>",
    "object": "<object data='%s/' width=9 height=9></object>",
    "embed": "<embed src='%s/' width=9 height=9>",
    "svg-image": "<svg><image href='%s/' width=9 height=9 /></svg>",
    "input-image": "<input type=image src='%s/'>",
    "fetch": "<script>fetch('%s/').catch(() => 0)</script>",
    "keepalive": "<script>fetch('%s/', {keepalive: true, method: 'POST', body: 'x'}).catch(() => 0)</script>",
    "xhr": "<script>{const x = new XMLHttpRequest(); x.open('POST', '%s/'); x.send('x')}</script>",
    "beacon": "<script>navigator.sendBeacon('%s/', 'x')</script>",
    "event-source": "<script>new EventSource('%s/')</script>",
    "web-socket": "<script>new WebSocket('%s/'.replace('http', 'ws'))</script>",
    "form": "<iframe name=f></iframe><form method=post action='%s/' target=f></form>"
    "<script>document.forms[0].submit()</script>",
    "worker-fetch": "<script>new Worker(URL.createObjectURL("
    "new Blob([`fetch('%s/').catch(() => 0)`])))</script>",
    "blob-frame": "<iframe id=b></iframe><script>b.src = URL.createObjectURL("
    "new Blob([`<img src='%s/'>`], {type: 'text/html'}))</script>",
    "redirect": "<script>fetch('/redirect?%s/', {mode: 'no-cors'}).catch(() => 0)</script>",
    "service-worker": "<script>navigator.serviceWorker.register('/worker.js?%s/')</script>",
    "ping": "<a id=p href='#x' ping='%s/'>x</a><script>p.click()</script>",
    "prefetch": "<link rel=prefetch href='%s/'>",
    "preconnect": "<link rel=preconnect href='%s/'>",
    "dns-prefetch": "<link rel=dns-prefetch href='%s/'>",
}
# What a headless Chromium under these flags does not even ask the egress for.
SILENT = {"dns-prefetch", "icon", "manifest", "ping", "preconnect", "speculation"}
# As a page of their own, which is left.
PAGES = {
    "location": "<script>location = '%s/'</script>",
    "meta-refresh": "<meta http-equiv=refresh content='0;url=%s/'>",
    "form-post": "<form method=post action='%s/'></form><script>document.forms[0].submit()</script>",
    "click": "<a id=a href='%s/'>x</a><script>a.click()</script>",
    # Windows open on a click only.
    "popup": "<button onclick=\"window.open('%s/')\">x</button>",
    "speculation": '<script type=speculationrules>{"prefetch":[{"source":"list","urls":["%s/"],'
    '"eagerness":"immediate"}]}</script>',
}
# STUN goes by UDP, and by TCP as a TURN server; done once no more candidates come.
WEB_RTC = """
const [host, done] = arguments;
const peer = new RTCPeerConnection({iceServers: [
  {urls: [`stun:${host}`]},
  {urls: [`turn:${host}?transport=udp`, `turn:${host}?transport=tcp`], username: 'u', credential: 'c'},
]});
peer.createDataChannel('x');
peer.onicegatheringstatechange = () => { if (peer.iceGatheringState === 'complete') done(true); };
peer.createOffer().then((offer) => peer.setLocalDescription(offer));
"""
SERVICE_WORKER = (
    "self.addEventListener('install', (event) => event.waitUntil("
    "fetch(self.location.search.slice(1)).catch(() => 0)))"
)
