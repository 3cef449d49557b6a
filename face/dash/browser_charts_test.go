package dash_test

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/verify"
)

// lossChart is the querySelector selector of the loss chart.
const lossChart = `[data-chart=\"Loss\"]`

// TestCharts checks that a browser can save a chart, zoom into it, and draw a different run over
// it.
func TestCharts(t *testing.T) {
	b := open(t)
	web := page(t, shownRun)
	t.Run("picture", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		b.savesPicture(t)
	})
	t.Run("zoom", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		b.zooms(t)
	})
	t.Run("one cursor", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		b.sharesCursor(t)
	})
	t.Run("hostile numbers", func(t *testing.T) {
		got := b.text(t, `import("./charts.js").then(({ ticks }) => [[0, 10], [1e17, 1e17 + 16], [-1e308, 1e308], [NaN, 1]].map(([a, b]) => ticks(a, b, 4).length).join(" "))`)
		if got != "3 9 0 1" {
			t.Errorf("the axes have %s numbers", got)
		}
	})
	t.Run("claims that agree", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		got := b.text(t, `import("./learning.js").then(({ lossChart }) => { const rounds = [1, 2, 3].map((s) => ({ s, n: 1, t: s, w: [], k: 1, a: 1, x: 2000, ...(s === 2 ? {} : { y: 5, z: 7 }) }));
		  return [...lossChart({ status: null, history: { rounds, tokens: 3, began: 0, marks: [] } }, false, null).querySelectorAll("svg.chart path")].filter((p) => p.getAttribute("d").includes("NaN")).length; })`)
		if got != "0" {
			t.Errorf("%s curves contain NaN if all witnesses claim the same", got)
		}
	})
	t.Run("another run", func(t *testing.T) { b.overlays(t, web.URL) })
	if said := b.said(); said != "" {
		t.Errorf("the browser reported errors:\n%s", said)
	}
}

// savesPicture presses the button of a chart and examines the file.
func (b *browser) savesPicture(t *testing.T) {
	saved := b.text(t, `new Promise((done) => {
	  const make = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
	  let blob = null;
	  URL.createObjectURL = (b) => { blob = b; return make.call(URL, b); };
	  HTMLAnchorElement.prototype.click = function () {
	    const reader = new FileReader();
	    reader.onload = () => done(this.download + " " + reader.result.split(",")[1]);
	    reader.readAsDataURL(blob);
	    URL.createObjectURL = make; HTMLAnchorElement.prototype.click = click;
	  };
	  document.getElementById("png-Loss").click();
	})`)
	name, encoded, _ := strings.Cut(saved, " ")
	if name != "tiny-llama-Loss.png" {
		t.Errorf("the file is called %q", name)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	image, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if size := image.Bounds(); size.Dx() != 1640 || size.Dy() < 440 {
		t.Errorf("it has %v pixels", size)
	}
	found := make(map[[3]uint32]int)
	for y := range image.Bounds().Dy() {
		for x := range image.Bounds().Dx() {
			r, g, b, _ := image.At(x, y).RGBA()
			found[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for subject, colour := range map[string][3]uint32{"paper": {0xff, 0xff, 0xff}, "median": {0x2a, 0x5b, 0xd7}, "spread": {0xd9, 0xe1, 0xf8}, "ejection": {0xb0, 0x24, 0x1c}, "grid": {0xdf, 0xe3, 0xea}, "text": {0x17, 0x1b, 0x24}} {
		if found[colour] < 20 {
			t.Errorf("%d pixels have the colour of the %s", found[colour], subject)
		}
	}
	if *pictures != "" {
		if err := os.WriteFile(filepath.Join(*pictures, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sharesCursor reads a value of the loss, and checks that the other charts show the same round.
func (b *browser) sharesCursor(t *testing.T) {
	b.unfold(t)
	b.do(t, chromedp.Focus(chromedp.CSS(`[data-chart="Loss"] svg`)), chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	if got := b.text(t, `document.querySelector('[data-chart="Loss"] .tip:not([hidden])').innerText.replace(/\n/g, ", ")`); !strings.HasPrefix(got, "Step 5, median claim 4.9") || !strings.Contains(got, "spread 4.9") || !strings.Contains(got, "ejection of ") {
		t.Errorf("the tooltip at the cursor is %q", got)
	}
	if got := b.text(t, `[...document.querySelectorAll("figure[data-chart] .readout")].filter((r) => !r.textContent.startsWith("Step 5:")).map((r) => r.textContent).join("; ")`); got != "" {
		t.Errorf("other charts read %q", got)
	}
	if got := b.text(t, `document.querySelectorAll(".tip:not([hidden])").length`); got != "1" {
		t.Errorf("%s charts show a tooltip", got)
	}
	b.do(t, chromedp.KeyEvent(kb.Escape))
	if got := b.text(t, `document.querySelectorAll('.tip:not([hidden]), .cursor[visibility="visible"]').length`); got != "0" {
		t.Errorf("after Escape there are %s cursors", got)
	}
}

// label returns the text that describes a chart to screen readers.
func (b *browser) label(t *testing.T) string {
	return b.text(t, `document.querySelector("`+lossChart+` svg").getAttribute("aria-label").split(". ")[0]`)
}

// zooms drags over a part of a chart and uses its keys and buttons.
func (b *browser) zooms(t *testing.T) {
	whole := b.label(t)
	back := `!!document.getElementById("Whole range Loss")`
	if got := b.text(t, back); got != "false" {
		t.Error("there is a way back from the whole range")
	}
	b.text(t, `document.querySelector("`+lossChart+`").scrollIntoView(), ""`)
	box := strings.Split(b.text(t, `(() => { const r = document.querySelector("`+lossChart+` svg").getBoundingClientRect(); return [r.left, r.width, r.top + r.height / 2].join(" "); })()`), " ")
	left, width, y := number(t, box[0]), number(t, box[1]), number(t, box[2])
	b.mouse(t, input.DispatchMouseEventTypeMousePressed, left+0.5*width, y)
	b.mouse(t, input.DispatchMouseEventTypeMouseMoved, left+0.6*width, y)
	b.mouse(t, input.DispatchMouseEventTypeMouseMoved, left+0.75*width, y)
	if got := b.text(t, `document.querySelector("`+lossChart+` .chosen").getAttribute("visibility")`); got != "visible" {
		t.Errorf("the selected range is %s", got)
	}
	b.mouse(t, input.DispatchMouseEventTypeMouseReleased, left+0.75*width, y)
	if got := b.label(t); got == whole {
		t.Errorf("after dragging the chart still reports %q", got)
	}
	if got := b.text(t, back); got != "true" {
		t.Error("no visible button restores the whole chart")
	}
	b.axe(t)
	b.do(t, chromedp.Click(chromedp.CSS(`[id="Whole range Loss"]`)))
	if got := b.label(t); got != whole {
		t.Errorf("the whole range is %q, was %q", got, whole)
	}
	if got := b.text(t, `document.activeElement === document.querySelector("`+lossChart+` svg")`); got != "true" {
		t.Error("the focus is lost after zooming out")
	}
	b.do(t, chromedp.KeyEvent("+"))
	near := b.label(t)
	b.do(t, chromedp.KeyEvent(kb.Home), chromedp.KeyEvent("+"))
	nearer := b.label(t)
	b.do(t, chromedp.KeyEvent("-"), chromedp.KeyEvent("-"))
	if far := b.label(t); near == whole || nearer == near || far != whole {
		t.Errorf("+ shows %q, again %q, and - after that %q", near, nearer, far)
	}
	b.do(t, chromedp.KeyEvent("+"), chromedp.KeyEvent("0"))
	if got := b.label(t); got != whole {
		t.Errorf("0 shows %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS(`[id="Zoom in Loss"]`)))
	if got := b.label(t); got == whole {
		t.Error("the button shows no less")
	}
	b.text(t, `document.querySelector("#axes-x").value = "hours", document.querySelector("#axes-x").dispatchEvent(new Event("change")), ""`)
	if got := b.text(t, back); got != "false" {
		t.Error("a range of steps counts as a range of hours")
	}
}

func (b *browser) mouse(t *testing.T, kind input.DispatchMouseEventType, x, y float64) {
	t.Helper()
	event := input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1}
	if kind == input.DispatchMouseEventTypeMouseReleased {
		event.Buttons = 0
	}
	if _, err := chromedp.Call(b.ctx, input.DispatchMouseEvent, event); err != nil {
		t.Fatal(err)
	}
}

// choose gives a file to the page, as if the reader had chosen it.
func (b *browser) choose(t *testing.T, name string, content []byte) {
	t.Helper()
	b.text(t, `(() => { const files = new DataTransfer();
	  files.items.add(new File([Uint8Array.from(atob("`+base64.StdEncoding.EncodeToString(content)+`"), (c) => c.charCodeAt(0))], "`+name+`"));
	  const field = document.querySelector("#other-file");
	  field.files = files.files; field.dispatchEvent(new Event("change")); return ""; })()`)
	b.text(t, `(async () => { const end = Date.now() + 50000; while (document.querySelector("#other-busy")) { if (Date.now() > end) throw new Error("it is busy for ever"); await new Promise((go) => setTimeout(go, 20)); } return ""; })()`)
}

// overlays draws a log, and a saved page, over a run, and then chooses files of other kinds.
func (b *browser) overlays(t *testing.T, address string) {
	verifier := built()
	if verifier == nil {
		t.Skip("the verifier was not built (make verifier): no run was drawn over a different run")
	}
	second := dashtest.Options{RunID: "second", Members: 6, Rounds: 90, RoundsPerEpoch: 15}
	path := filepath.Join(t.TempDir(), "log")
	if err := dashtest.Write(path, second); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b.show(t, address, shownRun.RunID, "light", 1280, 900)
	alone := b.label(t)
	b.text(t, `document.querySelector("#chart-options").open = true`)
	b.text(t, `window.said = [], new MutationObserver(() => { const busy = document.querySelector("#other-busy"); if (busy) said.push(busy.textContent); }).observe(document.body, { subtree: true, childList: true, characterData: true }), ""`)
	b.choose(t, "second.log", log)
	legend := `[...document.querySelectorAll("` + lossChart + ` .legend li")].map((l) => l.textContent).join(", ")`
	if got := b.text(t, legend); got != "median claim, median held-out claim, second, spread, ejection, drop" {
		t.Errorf("the loss is of %q", got)
	}
	if got := b.text(t, `said.join("; ")`); !strings.Contains(got, "Verifying second.log: ") || !strings.Contains(got, " %") {
		t.Errorf("during the reading, the page reported %q", got)
	}
	if got := b.label(t); got == alone {
		t.Errorf("the chart is as wide as without the longer run: %q", got)
	}
	for _, over := range []string{"hours", "tokens"} {
		b.text(t, `document.querySelector("#axes-x").value = "`+over+`", document.querySelector("#axes-x").dispatchEvent(new Event("change")), ""`)
		if got := b.text(t, `!!document.querySelector("`+lossChart+` path.c4")`); got != "true" {
			t.Errorf("over %s the other run is not drawn", over)
		}
	}
	b.axe(t)
	if *pictures != "" {
		b.window(t, "overlay")
	}
	b.do(t, chromedp.Click(chromedp.CSS("#other-remove")))
	if got := b.text(t, legend); strings.Contains(got, "second") {
		t.Errorf("after it was taken away: %q", got)
	}
	b.text(t, `(() => { const files = new DataTransfer(), field = document.querySelector("#other-file");
	  files.items.add(new File([new Uint8Array(1e6)], "stopped")); field.files = files.files; field.dispatchEvent(new Event("change")); return ""; })()`)
	b.do(t, chromedp.Click(chromedp.CSS("#other-stop")))
	if got := b.text(t, `[document.querySelector("#other-busy"), document.querySelector("#other-stop"), document.querySelector("#other-file").value].join("")`); got != "" {
		t.Errorf("after it was stopped: %q", got)
	}
	var page strings.Builder
	if err := verifier.Save(&page, log, verify.Told{}, "saved"); err != nil {
		t.Fatal(err)
	}
	b.choose(t, "second.html", []byte(page.String()))
	if got := b.text(t, legend); !strings.Contains(got, ", second, ") {
		t.Errorf("of a saved page: %q", got)
	}
	log[len(log)/2] ^= 1
	for name, content := range map[string][]byte{"forged": log, "page": []byte("<!doctype html>"), "empty": nil, "text": []byte("hello")} {
		b.choose(t, name, content)
		if got := b.text(t, `document.querySelector("#chart-options [role=alert]").textContent`); !strings.HasPrefix(got, name+" cannot be compared with this run: ") || !strings.HasSuffix(got, "psyche run archive.") {
			t.Errorf("%s: it reports %q", name, got)
		}
	}
}

// TestReadingShown checks that the page shows the progress of reading a log.
func TestReadingShown(t *testing.T) {
	b := open(t)
	web := page(t, shownRun)
	b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
	b.text(t, `(() => { const real = fetch; window.fetch = async (path, o) => path.startsWith("api/run?")
	  ? new Response(JSON.stringify({ key: "tiny-llama", status: null, history: null, locations: [], join: "", reading: { bytes: 3145728, size: 8388608 } })) : real(path, o); return ""; })()`)
	time.Sleep(3 * time.Second) // on the browser's clock: until the page has polled again
	if got := b.text(t, `document.querySelector("#run section").textContent`); !strings.Contains(got, "The host reads and verifies its log: 37 % of 8 MiB") {
		t.Errorf("it reports %q", got)
	}
	b.axe(t)
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// heldOut checks that the chart of the newest rounds omits the held-out losses of older checkpoints. In 20 of 60 rounds, two
// of five epochs end.
func (b *browser) heldOut(t *testing.T) {
	t.Helper()
	points := b.text(t, `(async () => {
	  const { lossChart } = await import("./learning.js"), data = await (await fetch("api/run?run=`+shownRun.RunID+`")).json();
	  const drawn = () => lossChart(data, true).querySelector("path.c2").getAttribute("d").split(/[ML]/).length - 1, all = drawn();
	  data.history.rounds = data.history.rounds.slice(-20);
	  return `+"`${all}, ${drawn()}`"+`; })()`)
	if points != "5, 2" {
		t.Errorf("%s held-out losses in all rounds and in the newest 20, want 5, 2", points)
	}
}
