package dash_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/psyche-go/psyche/face/dash/dashtest"
)

// TestFollowsLog checks that a page with a verified log verifies later entries, and shows no other entries.
func TestFollowsLog(t *testing.T) {
	b := open(t)
	if built() == nil {
		t.Skip("the verifier was not built (make verifier): not tested in a browser")
	}
	g := b.forgedPage(t)
	at := b.entries(t)
	b.checks(t)
	b.follows(t, g, at)
	at += 20
	step := b.step(t)
	if got := b.text(t, `document.querySelector("#h-take-part").closest("section").textContent`); !strings.Contains(got, "The link in the command names the run that was verified.") {
		t.Errorf("the command to join is shown as %q", got)
	}
	g.about(setting(map[string]any{"status.step": 999, "status.state_hash": strings.Repeat("00", 32), "log.records": at + 50, "log.head": strings.Repeat("00", 32)})...)
	b.stays(t, step, "a newer step with false data", "The host reports 50 entries more", fmt.Sprintf("the log is truncated after %d entries", at))
	g.forge(nil)
	b.stays(t, step, "an honest answer after that", "Verified by your browser. ", "the host's report differed from its log: the log is truncated")

	g.about(setting(map[string]any{"log.bytes": g.written + 1000})...)
	b.stays(t, step, "bytes that are not there", "Newer entries could not be fetched from the host")
	g.about(setting(map[string]any{"log.records": at - 10})...)
	for range 2 {
		b.stays(t, step, "fewer entries, for a moment")
	}
	b.stays(t, step, "fewer entries", "it has withdrawn entries")
	g.forge(nil)
	b.refresh(t)
	b.badJournal(t, g, at)
}

// badJournal answers requests for entries after at with nothing, and then with a changed entry.
func (b *browser) badJournal(t *testing.T, g *growing, at int) {
	t.Helper()
	step := b.step(t)
	g.forge(func(path string, body []byte) []byte {
		if path == "/api/journal" {
			return nil
		}
		return body
	})
	g.to(t, at+10)
	b.stays(t, step, "a log that is held back", "The host reports 10 entries more", "the log is truncated")
	g.forge(nil)
	b.follows(t, g, at+10)
	at, step = at+30, b.step(t)

	g.forge(func(path string, body []byte) []byte {
		if path == "/api/journal" {
			body[60] ^= 1 // of the first entry
		}
		return body
	})
	g.to(t, at+20)
	b.stays(t, step, "newer entries that somebody changed", "Not verified. ", "the log does not verify: entry ", "Follows from the first ")
	g.forge(nil)
	b.stays(t, step, "a log that did not verify", "Not verified. ") // until the reader starts the check again
	b.do(t, chromedp.Click(chromedp.CSS("#verify")))
	b.text(t, `(async () => { while (!document.querySelector("#verify-told")) await new Promise((go) => setTimeout(go, 50)); })()`)
	if got := b.verified(t); !strings.HasPrefix(got, "Verified by your browser. ") {
		t.Errorf("the second check reports %q", got)
	}
}

// setting returns forgeries that set fields to values.
func setting(values map[string]any) (forgeries []forgery) {
	for path, value := range values {
		forgeries = append(forgeries, forgery{path: strings.Split(path, "."), change: func(any) any { return value }})
	}
	return forgeries
}

// stays refreshes the page, and checks its texts and that it shows the same step as before.
func (b *browser) stays(t *testing.T, step, what string, texts ...string) {
	t.Helper()
	b.refresh(t)
	text := b.text(t, `document.querySelector("#run").textContent`)
	for _, want := range texts {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %q on the page", what, want)
		}
	}
	if got := b.step(t); got != step {
		t.Errorf("%s: the page shows step %q, and verified %q", what, got, step)
	}
}

// follows adds twenty entries to the log and checks that the page shows them.
func (b *browser) follows(t *testing.T, g *growing, from int) {
	t.Helper()
	g.to(t, from+20)
	_, _, alarms := b.refreshed(t)
	if got := b.entries(t); got != from+20 || alarms != "" {
		t.Errorf("the page shows the first %d entries, want %d; alarms: %q", got, from+20, alarms)
	}
	if want := g.run.Log.View().State.Progress.Step; b.step(t) != fmt.Sprintf("%d of %d", want-1, forgedRun.Rounds) {
		t.Errorf("the page shows step %q, want %d", b.step(t), want)
	}
}

// step returns the number of completed rounds on the page, and of all rounds.
func (b *browser) step(t *testing.T) string {
	t.Helper()
	return b.text(t, `document.querySelector("#done").textContent`)
}

// entries returns the number of verified entries, or before a check the number of entries to check.
func (b *browser) entries(t *testing.T) (n int) {
	t.Helper()
	text := b.text(t, `(/the first ([0-9,]+) entries/.exec(document.querySelector("#run").textContent) || /The host reports ([0-9,]+) entries/.exec(document.querySelector("#run").textContent))[1]`)
	if _, err := fmt.Sscan(strings.ReplaceAll(text, ",", ""), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestForgedOlderEvents checks that older events come from the verifier after a check.
func TestForgedOlderEvents(t *testing.T) {
	b := open(t)
	if built() == nil {
		t.Skip("the verifier was not built (make verifier): not tested in a browser")
	}
	long := dashtest.Options{RunID: "long", Members: 3, Rounds: 220, RoundsPerEpoch: 2, Silent: 1}
	l := forging(t, page(t, long).URL)
	l.forge(func(path string, body []byte) []byte {
		if path == "/api/log" {
			return []byte(`{"events":[{"n":1,"t":1,"kind":"authority","detail":"a forgery"}],"more":0}`)
		}
		return body
	})
	b.show(t, l.URL, long.RunID, "light", 1400, 1000)
	list := func(older string) string {
		b.do(t, chromedp.Click(chromedp.CSS("#older")))
		return b.text(t, `(async () => { for (let n = 0; n < 600 && document.querySelectorAll("#s-log li").length <= `+older+`; n++) await new Promise((go) => setTimeout(go, 50)); return document.querySelector("#s-log").textContent; })()`)
	}
	if got := list("200"); !strings.Contains(got, "a forgery") {
		t.Errorf("the proxy does not falsify the answer before the check: %.100q", got)
	}
	b.checks(t)
	if got := b.text(t, `document.querySelector("#s-log").textContent`); strings.Contains(got, "a forgery") {
		t.Error("older events of the host remain after the check")
	}
	if got := list("200"); strings.Contains(got, "a forgery") || !strings.Contains(got, "The run began.") {
		t.Errorf("after the check the older events are %.100q", got[max(0, len(got)-100):])
	}
}
