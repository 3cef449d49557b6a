package dash_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/shown"
	"github.com/psyche-go/psyche/face/dash/verify"
)

// friendsRun is a run that people share.
var friendsRun = dashtest.Options{
	RunID: "tiny-llama", Title: "A tiny llama for our reading club", Name: "Ada,Grace,Edsger,Barbara,Ken,Radia", Members: 9, Rounds: 60, RoundsPerEpoch: 12, Silent: 4, Hang: 7, Boast: 2,
}

// answers maps the questions of a reader, as in the attribute data-answers, to the beginnings of the answers, or to parts of them.
type answers map[string]string

// screen is a state of a run, and the answers that its first screen must contain.
type screen struct {
	name    string
	run     dashtest.Options
	until   func(*shown.Run) bool // true for the state that the page shows; nil: the newest
	later   time.Duration         // age of the newest entry
	answers answers
}

// screens are the states that a reader meets.
func screens() []screen {
	live := func(r *shown.Run) bool { return r.Status.Step == 35 && r.Status.State == "RoundTrain" }
	waiting, court, crowd := friendsRun, courtRun, friendsRun
	waiting.Waits = 2
	court.Title, court.Name = friendsRun.Title, friendsRun.Name
	crowd.Members, crowd.Audits, crowd.Cheat, crowd.Slander = 160, 10, 11, 12
	return []screen{
		{"live", friendsRun, live, time.Second, answers{
			"alive": "Training, round 35 of 60", "learning": "Loss3.1", "long": "34 of 60", "who": "8 members", "wrong": "No ejections. Without audits", "join": "Take part",
		}},
		{"waiting", waiting, nil, 3 * time.Minute, answers{
			"alive": "Waiting for 2 more members", "learning": "Learning has not begun", "long": "0 of 60", "who": "2 of 4 needed members are here: 8EYKVyNC… Ada, ", "wrong": "No ejections. ", "join": "psyche-client join 'psyche://",
		}},
		{"cheating", court, func(r *shown.Run) bool { return len(r.History.Trials) > 1 && r.Status.State == "RoundTrain" }, time.Second, answers{
			"alive": "Training, round ", "learning": "Loss", "long": " of 40", "who": "2 ejected", "wrong": "2 members were ejected: 1 for a false result, 1 for a false accusation. See the evidence", "join": "Take part",
		}},
		{"finished", friendsRun, nil, time.Hour, answers{
			"alive": "Finished", "learning": "Final loss2.7", "long": "60 of 60", "who": "9 contributors", "wrong": "No ejections. ", "join": "Use the model",
		}},
		{"dead", friendsRun, live, 3 * time.Hour, answers{
			"alive": "Dead: the host last answered 3 hours ago", "learning": "Loss3.1", "long": "not known", "who": "8 members", "wrong": "No ejections. ", "join": "Take part",
		}},
		{"crowd", crowd, func(r *shown.Run) bool { return len(r.History.Trials) > 1 && r.Status.State == "RoundTrain" }, time.Second, answers{
			"alive": "Training, round ", "learning": "Loss", "long": " of 60", "who": "2 ejected", "wrong": "2 members were ejected", "join": "Take part",
		}},
	}
}

// findAnswer returns the visible answer to a question and whether it is within the window. Of a section, only the heading and the
// first value must be.
const findAnswer = `((question) => {
  const inside = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0 && r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth; };
  const parts = { learning: "#loss, svg.chart", who: ".faces li:first-child, .sum", join: "#command, .qr" };
  const found = [...document.querySelectorAll('[data-answers="' + question + '"]')].filter((e) => e.checkVisibility());
  const good = found.filter((e) => e.tagName === "SECTION" ? [...e.querySelectorAll(parts[question])].every(inside) : inside(e));
  return JSON.stringify({ all: found.length, text: good.map((e) => e.textContent.replace(/\s+/g, " ")).join(" | ") });
})`

// TestFirstScreen checks that the first screen of each state, on a desktop and on a phone, answers six questions: is it alive, does it
// learn, how long, who, is anything wrong, and how do I join.
func TestFirstScreen(t *testing.T) {
	for _, s := range screens() {
		t.Run(s.name, func(t *testing.T) {
			b := open(t)
			g, now := s.open(t)
			b.freeze(t, now)
			for _, window := range []struct {
				name, theme   string
				width, height int64
			}{{"desktop", "light", 1440, 900}, {"desktop-dark", "dark", 1440, 900}, {"phone", "light", 390, 844}, {"phone-dark", "dark", 390, 844}} {
				b.show(t, g.URL, s.run.RunID, window.theme, window.width, window.height)
				if s.name == "waiting" {
					b.text(t, `(async () => { const end = Date.parse("2000-01-01") + performance.now() + 20000; while (!(document.querySelector(".qr").naturalWidth > 0) && Date.parse("2000-01-01") + performance.now() < end) await new Promise((go) => setTimeout(go, 20)); return ""; })()`)
				}
				if *pictures != "" {
					b.window(t, cmp.Or(documented[s.name+" "+window.name], "screen-"+s.name+"-"+window.name))
				}
				b.answers(t, s.answers, window.name)
				if got := b.text(t, `document.documentElement.scrollWidth <= innerWidth`); got != "true" {
					t.Errorf("%s: the page is wider than the window", window.name)
				}
				if got := b.text(t, `document.querySelectorAll("#tiles > div").length`); number(t, got) > 6 {
					t.Errorf("%s: the first screen has %s tiles", window.name, got)
				}
				t.Logf("| %s | %s | %s, axe: %s", s.name, window.name, b.text(t, places), b.axe(t))
			}
			if said := b.said(); said != "" {
				t.Errorf("the browser reported errors:\n%s", said)
			}
		})
	}
}

// places returns the vertical positions of the most important parts, and the size of all fetched files after compression with gzip.
const places = `(async () => {
  const at = (name, part) => { const e = [...document.querySelectorAll(part)].find((e) => e.checkVisibility()), r = e && e.getBoundingClientRect(); return name + (r ? " " + Math.round(r.top) + " to " + Math.round(r.bottom) : " –"); };
  let bytes = 0;
  for (const address of new Set([location.href, ...performance.getEntriesByType("resource").map((e) => e.name)])) {
    bytes += (await new Response((await fetch(address)).body.pipeThrough(new CompressionStream("gzip"))).arrayBuffer()).byteLength;
  }
  return [at("loss", "section.loss svg.chart"), at("banner", ".banner, #calm"), at("invitation", "#run #command"), at("button", "#take-part"), (bytes / 1024).toFixed(0) + " KiB"].join(", ");
})()`

// answers checks the answers on the first screen.
func (b *browser) answers(t *testing.T, want answers, window string) {
	t.Helper()
	for question, text := range want {
		var got struct {
			All  int
			Text string
		}
		if err := json.Unmarshal([]byte(b.text(t, findAnswer+fmt.Sprintf("(%q)", question))), &got); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.Text, text) {
			t.Errorf("%s: the first screen answers the question %q with %q (of %d answers on the page), want %q", window, question, got.Text, got.All, text)
		}
	}
}

// open serves the page of a screen. It returns the reader's time.
func (s screen) open(t *testing.T) (*growing, time.Time) {
	t.Helper()
	g := grow(t, s.run)
	entries, at := g.find(t, s.until)
	g.to(t, entries)
	g.date = at.Add(s.later)
	return g, at.Add(s.later)
}

// find returns the number of entries after which a run first has a state, and the time of the state. If until is nil, find returns
// all entries.
func (g *growing) find(t *testing.T, until func(*shown.Run) bool) (entries int, at time.Time) {
	t.Helper()
	v, from := verify.New(), 0
	defer v.Close(verify.Told{})
	for i, end := range g.entries {
		if _, err := v.Write(g.log[from:end]); err != nil {
			t.Fatal(err)
		}
		from = end
		if i == 0 || until == nil && i < len(g.entries)-1 {
			continue
		}
		run := v.Show(0)
		at = time.UnixMilli(int64(max(run.History.Now, 1_760_000_000_000)))
		if until == nil || until(&run) {
			return i + 1, at
		}
	}
	t.Fatal("the run never has this state")
	return 0, at
}

// TestStatesInWords checks the words for the state of a run.
func TestStatesInWords(t *testing.T) {
	b := open(t)
	web := page(t, dashtest.Options{RunID: "tiny", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	b.show(t, web.URL, "tiny", "light", 800, 600)
	for status, want := range map[string]string{
		`run_state: "WaitingForMembers", pending: ["a", "b"], config: { init_min_clients: 3 }, run_state_start_unix_timestamp: 820`:                     "warn Waiting for 1 more member for 3 minutes",
		`run_state: "WaitingForMembers", pending: [], config: { init_min_clients: 3 }, run_state_start_unix_timestamp: 0`:                               "warn Waiting for 3 more members",
		`run_state: "WaitingForMembers", pending: ["a"], config: { init_min_clients: 1 }, waits_for_member: true, run_state_start_unix_timestamp: 1000`: "warn Waiting for a former member for 0 seconds",
		`run_state: "WaitingForMembers", pending: ["a"], config: { init_min_clients: 1 }`:                                                               "warn Starting: enough members have joined",
		`run_state: "RoundTrain", step: 17`: "good Training, round 17 of 40", `run_state: "RoundWitness", step: 17`: "good Training, round 17 of 40",
		`run_state: "Cooldown", step: 17`: "good Saving the model of round 16 of 40", `run_state: "Warmup", run_state_start_unix_timestamp: 995`: "good Getting ready: members load the model for 5 seconds",
		`run_state: "Paused", step: 17, run_state_start_unix_timestamp: 940`: "warn Paused after round 16 of 40 for 60 seconds", `run_state: "Paused", step: 1`: "warn Paused before the first round",
		`run_state: "Finished", step: 41`: "good Finished", `run_state: "RoundTrain", closed: true, step: 5`: "muted Closed after round 4 of 40",
		`run_state: "RoundTrain", step: 9, run_state_start_unix_timestamp: 10, config: { max_round_train_time: 8 }`: "bad Dead: the host last answered 15 minutes ago",
	} {
		script := `(async () => { const { state } = await import("/progress.js"), { tone, text } = state({ status: { step: 1, total_steps: 40, config: {}, ` + status + ` }, history: { now: 100000 } }, 1000000, 0); return tone + " " + text; })()`
		if got := b.text(t, script); got != want {
			t.Errorf("{%s}: the page calls this %q, want %q", status, got, want)
		}
	}
	lost := `(async () => (await import("/progress.js")).state({ status: { run_state: "Warmup", step: 1, total_steps: 40, config: {} } }, 1000000, 940000).text)()`
	if got := b.text(t, lost); got != "Dead: the host last answered 60 seconds ago" {
		t.Errorf("without an answer of the host, the page reports %q", got)
	}
}

// TestProbation checks that the page shows how long the results of a new member do not count.
func TestProbation(t *testing.T) {
	b := open(t)
	s := screen{run: friendsRun, until: func(r *shown.Run) bool { return r.Status.Step == 15 && r.Status.State == "RoundTrain" }, later: time.Second}
	s.run.Late, s.run.Probation, s.run.Members = 2, 8, 6
	g, now := s.open(t)
	b.freeze(t, now)
	b.show(t, g.URL, s.run.RunID, "light", 1440, 900)
	if got := b.text(t, `[...document.querySelectorAll(".faces li")].map((li) => li.textContent).filter((text) => text.includes("probation")).join("; ")`); !strings.Contains(got, dashtest.Key(2).ID().String()[:8]) || !strings.Contains(got, "probation: 6 rounds to go") || strings.Contains(got, "; ") {
		t.Errorf("on probation: %q", got)
	}
}

// TestUseTheModel checks the commands for the model of a finished run, and its digest.
func TestUseTheModel(t *testing.T) {
	b := open(t)
	web := page(t, friendsRun)
	b.show(t, web.URL, friendsRun.RunID, "light", 1440, 900)
	b.do(t, chromedp.Click(chromedp.CSS("#take-part")))
	if got := b.text(t, `document.activeElement.getAttribute("aria-labelledby")`); got != "h-use-the-model" {
		t.Errorf("the button in the header leads to %s", got)
	}
	if got := b.text(t, `document.querySelector("#use").textContent`); !strings.HasPrefix(got, "psyche-client generate --model ~/.local/state/psyche/runs/tiny-llama-*/tiny-llama-step60 --prompt ") {
		t.Errorf("commands with a folder: %q", got)
	}
	if got := b.text(t, `document.querySelector("#use-link").textContent`); !strings.HasPrefix(got, "psyche-client generate 'psyche://127.0.0.1:39405/tiny-llama?key="+dashtest.Key(-1).ID().String()+"&genesis=") {
		t.Errorf("commands with a link: %q", got)
	}
	if got := b.text(t, `document.querySelector("#copy-use").textContent + ", " + document.querySelector("#copy-use-link").textContent`); got != "Copy the commands, Copy these commands" {
		t.Errorf("buttons: %s", got)
	}
	if got := b.text(t, `[...document.querySelectorAll("#s-members th[scope=col]")].map((th) => th.textContent).join(" ")`); !strings.Contains(got, "Dropped") || strings.Contains(got, "Ejected") {
		t.Errorf("the run has drops, but no ejections; the table of members has the columns %s", got)
	}
	if got := b.text(t, `document.querySelector("#digest").textContent`); len(got) != 64 || !strings.HasPrefix(got, "013d") { // as dashtest makes it for the last step
		t.Errorf("digest %q", got)
	}
}

// TestWordsWithoutHistory checks the words for a stopped run without a journal, for an open trial, for an ejection before the
// member returned, and for a finished run without members.
func TestWordsWithoutHistory(t *testing.T) {
	b := open(t)
	web := page(t, dashtest.Options{RunID: "tiny", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	b.show(t, web.URL, "tiny", "light", 800, 600)
	b.text(t, `window.of = (status, history) => ({ status: { step: 9, total_steps: 40, config: { max_round_train_time: 8, verification_percent: 1 }, members: [], pending: [], trials: [], ...status }, history, locations: [] }), ""`)
	for script, want := range map[string]string{
		`import("/progress.js").then((m) => m.state(of({ run_state: "RoundTrain", run_state_start_unix_timestamp: 10 }, null), 1000000, 0).text)`:                                        "Dead: the phase is over, and the host did not end it",
		`import("/story.js").then((m) => m.banners(of({ run_state: "RoundTrain", trials: [{}] }, null), 0, null).filter(Boolean).map((p) => p.textContent).join(" "))`:                   "No ejections. 1 member is on trial.",
		`import("/story.js").then((m) => m.banners(of({ run_state: "RoundTrain" }, { members: [{ standing: "member", ejected: 1 }], open_trials: [] }), 0, null)[1].textContent.trim())`: "1 member was ejected earlier. See the evidence",
		`import("/people.js").then((m) => m.people(of({ run_state: "Finished" }, null), true).textContent)`:                                                                              "0 contributorsNobody took part.",
	} {
		if got := b.text(t, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

// TestInvitationEnds checks that an open invitation closes when the run ends, and that the focus is then in the header.
func TestInvitationEnds(t *testing.T) {
	b := open(t)
	s := screens()[0]
	g, now := s.open(t)
	b.freeze(t, now)
	b.show(t, g.URL, s.run.RunID, "light", 1440, 900)
	b.do(t, chromedp.Click(chromedp.CSS("#take-part")))
	if got := b.text(t, `document.querySelector("#invite").open`); got != "true" {
		t.Fatal("the invitation is not open")
	}
	g.about(setting(map[string]any{"status.run_state": "Finished"})...)
	b.refresh(t)
	if got := b.text(t, `document.querySelector("#invite").open`); got != "false" {
		t.Error("an empty dialog covers the page of a run that is over")
	}
}

// TestForgedUpload checks that no command uses a repository that a member reported as the place of the model, because every
// member can report any place.
func TestForgedUpload(t *testing.T) {
	b := open(t)
	web := page(t, dashtest.Options{RunID: "tiny", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	b.show(t, web.URL, "tiny", "light", 800, 600)
	script := `(async () => { const { ending } = await import("/ending.js"), place = (digest) => ({ step: 4, kind: "Hub", place: "evil/model 0123", reporter: "Mallory11", digest });
	  return [place("ab"), place("cd")].map((p) => { const drawn = ending({ status: { run_id: "tiny", checkpoint: { step: 4, digest: "ab" } }, history: null, locations: [p] });
	    return drawn.querySelector("#use").textContent + " | " + drawn.textContent; }).join(" || "); })()`
	got := strings.Split(b.text(t, script), " || ")
	for i, drawn := range got {
		commands, text, _ := strings.Cut(drawn, " | ")
		if strings.Contains(commands, "evil") {
			t.Errorf("a member chose the model of the commands %q", commands)
		}
		if claim := strings.Contains(text, "Mallory1… reports that it uploaded the model to evil/model. Nobody has checked this report."); claim != (i == 0) {
			t.Errorf("upload %d: the text is %q", i, text)
		}
	}
}

// TestLostHost checks that the page reports that its host has stopped to answer, and later that the host answers again.
func TestLostHost(t *testing.T) {
	b := open(t)
	s := screens()[0]
	g, now := s.open(t)
	b.freeze(t, now)
	b.show(t, g.URL, s.run.RunID, "light", 1440, 900)
	words := `document.querySelector("#state").textContent`
	b.text(t, `(() => { window.real = fetch; window.fetch = async () => { throw new Error("no network"); }; const late = Date.now() + 60000; Date.now = () => late; return ""; })()`)
	b.refresh(t)
	if got := b.text(t, words); got != "Dead: the host last answered 60 seconds ago" {
		t.Errorf("the page reports %q", got)
	}
	b.text(t, `window.fetch = window.real, ""`)
	g.date = now.Add(time.Second)
	b.text(t, `(() => { const on = Date.now() - 59000; Date.now = () => on; return ""; })()`)
	b.refresh(t)
	if got := b.text(t, words); got != "Training, round 35 of 60" {
		t.Errorf("once the host answers again, the page reports %q", got)
	}
}

// TestKeepsClicks checks that the page is not redrawn between the press and the release of a button.
func TestKeepsClicks(t *testing.T) {
	b := open(t)
	s := screens()[0]
	g, now := s.open(t)
	b.freeze(t, now)
	b.show(t, g.URL, s.run.RunID, "light", 1440, 900)
	b.text(t, `document.querySelector("#title").dataset.old = "yes", dispatchEvent(new PointerEvent("pointerdown")), ""`)
	g.about(setting(map[string]any{"status.step": 36})...)
	b.refresh(t)
	old := `document.querySelector("#title").dataset.old || "no"`
	if got := b.text(t, old); got != "yes" {
		t.Error("the page was redrawn while a button was pressed")
	}
	b.text(t, `dispatchEvent(new PointerEvent("pointerup")), new Promise((go) => setTimeout(go, 50)).then(() => "")`)
	b.refresh(t)
	if got := b.text(t, old); got != "no" {
		t.Error("the page was not redrawn after the button was released")
	}
}

// TestTakePart checks that the button to take part stays in the window while the reader scrolls, and that the keyboard opens and
// closes the invitation.
func TestTakePart(t *testing.T) {
	b := open(t)
	s := screens()[0]
	g, now := s.open(t)
	b.freeze(t, now)
	b.show(t, g.URL, s.run.RunID, "light", 390, 844)
	for _, to := range []string{"0", "1000", "document.documentElement.scrollHeight"} {
		if got := b.text(t, `(scrollTo(0, `+to+`), (() => { const r = document.querySelector("#take-part").getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight && r.width > 0; })())`); got != "true" {
			t.Errorf("scrolled to %s, the button is not in the window", to)
		}
	}
	b.do(t, chromedp.Focus(chromedp.CSS("#take-part")), chromedp.KeyEvent(kb.Enter))
	for _, part := range []string{"#command", "#link", "#copy", "#copy-link", ".qr", "#needs"} {
		if got := b.text(t, `document.querySelector("#invite `+part+`") !== null`); got != "true" {
			t.Errorf("the invitation has no %s", part)
		}
	}
	b.axe(t)
	b.do(t, chromedp.KeyEvent(kb.Escape))
	if got := b.text(t, `document.querySelector("#invite").open + " " + document.activeElement.id`); got != "false take-part" {
		t.Errorf("after Escape: %s", got)
	}
}

// TestEjectionIsShown checks that an open page shows an ejection by itself, and prints the delay.
func TestEjectionIsShown(t *testing.T) {
	b := open(t)
	g := grow(t, courtRun)
	before, at := g.find(t, func(r *shown.Run) bool { return len(r.History.Open) > 0 })
	after, end := g.find(t, func(r *shown.Run) bool { return len(r.History.Trials) > 0 })
	g.to(t, before)
	g.date = at
	b.show(t, g.URL, courtRun.RunID, "light", 1440, 900)
	if got := b.text(t, `document.querySelector("#calm").textContent`); got != "No ejections. 1 member is on trial." {
		t.Errorf("before the ejection, the page reports %q", got)
	}
	began := time.Now()
	g.to(t, after)
	g.date = end
	got := b.text(t, `(async () => {
	  while (!document.querySelector("#cheats")) await new Promise((go) => setTimeout(go, 20));
	  return [...document.querySelectorAll("#state, #cheats, .people .sum, .faces .out")].map((e) => e.textContent).join(" | ");
	})()`)
	t.Logf("%.1f s after the server has the entry, the first screen shows: %s", time.Since(began).Seconds(), got)
	cheat := dashtest.Key(courtRun.Cheat).ID().String()[:8]
	if !strings.Contains(got, "1 member was ejected for a false result. See the evidence | 1 ejected | ") || !strings.Contains(got, cheat+"…ejected") {
		t.Errorf("after the ejection, the page reports %q", got)
	}
}

// TestEvidence checks the evidence against ejected members, and the link to it.
func TestEvidence(t *testing.T) {
	b := open(t)
	web := page(t, courtRun)
	b.show(t, web.URL, courtRun.RunID, "light", 1440, 900)
	b.do(t, chromedp.Click(chromedp.CSS("#cheats button")))
	if got := b.text(t, `document.activeElement.getAttribute("aria-labelledby")`); got != "h-evidence" {
		t.Errorf("the link leads to %s", got)
	}
	got := b.text(t, `document.querySelector("#h-evidence").closest("section").textContent`)
	cheat, slander := dashtest.Key(courtRun.Cheat).ID().String()[:8], dashtest.Key(courtRun.Slander).ID().String()[:8]
	for _, want := range []string{
		cheat + "… was ejected: a jury found it guilty (wrong result). Of ", slander + "… was ejected: it made a false accusation (wrong result). Of ",
		"psyche run examine audited.log --entry ", " of its results counted, ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the evidence does not contain %q: %q", want, got)
		}
	}
	red := `[...document.querySelectorAll("#run .bad")].map((e) => e.closest("tr, li, .banner, section").textContent)`
	if got := b.text(t, red+`.filter((text) => !/eject/.test(text)).join("; ")`); got != "" {
		t.Errorf("red is not only for ejected members: %s", got)
	}
}
