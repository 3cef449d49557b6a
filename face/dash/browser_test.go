package dash_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/face/dash/verify"
	"github.com/psyche-go/psyche/record/invite"
)

var pictures = flag.String("dash.pictures", "", "folder for screenshots")

// axeVariable names the file axe.min.js of axe-core, which finds accessibility problems.
const axeVariable = "PSYCHE_TEST_AXE"

// browser is a browser and its error messages.
type browser struct {
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// open starts chromium, or skips the test if chromium is missing.
func open(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("chromium is missing (Debian: apt-get install chromium): the page was not tested in a browser")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.Flag("force-prefers-reduced-motion", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complaints = append(b.complaints, fmt.Sprintf("%+v", *e.ExceptionDetails))
		case *log.EventEntryAdded:
			b.complaints = append(b.complaints, e.Entry.Text+" "+e.Entry.URL)
		}
	})
	if err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	return b
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	for _, step := range steps {
		err := chromedp.Do(ctx, step)
		for isStale(err) {
			err = chromedp.Do(ctx, step)
		}
		if err != nil {
			t.Fatalf("%v; the browser reported: %v", err, b.said())
		}
	}
}

// isStale reports whether the page replaced a node after a step found it and before the step used it.
func isStale(err error) bool {
	e, ok := errors.AsType[*cdproto.Error](err)
	return ok && e.Code == -32000 && e.Message == "Could not find node with given id"
}

// text evaluates an expression.
func (b *browser) text(t *testing.T, expression string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	raw, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func (b *browser) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.complaints, "\n")
}

// show opens the page at a run, in a window of the given size and theme.
func (b *browser) show(t *testing.T, address, run, theme string, width, height int64) {
	t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		t.Fatal(err)
	}
	b.do(t, chromedp.EmulateViewport(width, height), chromedp.Navigate("about:blank"),
		chromedp.Navigate(address+"/#run="+url.QueryEscape(run)), chromedp.WaitVisible(chromedp.CSS("#title")))
}

// unfold opens the technical details, unless they are open.
func (b *browser) unfold(t *testing.T) {
	t.Helper()
	b.text(t, `document.querySelector("#details").open = true`)
	b.do(t, chromedp.WaitVisible(chromedp.CSS("#h-configuration")))
}

var shownRun = dashtest.Options{RunID: "tiny-llama", Members: 12, Rounds: 60, RoundsPerEpoch: 12, Silent: 4, Hang: 7, Eject: 5, Wrong: 3, Boast: 2}

// courtRun has audits: a jury ejects a cheat, and a different jury ejects a slanderer.
var courtRun = dashtest.Options{RunID: "audited", Members: 12, Rounds: 40, RoundsPerEpoch: 20, Audits: 25, Cheat: 4, Slander: 7}

func TestBrowser(t *testing.T) {
	b := open(t)
	odd := shownRun
	odd.RunID, odd.Name, odd.Rounds = hostile, hostileMember, 12
	web := page(t, shownRun, odd, courtRun)

	t.Run("a hostile name is text", func(t *testing.T) {
		b.show(t, web.URL, hostile, "light", 1280, 900)
		if got := b.text(t, `document.querySelector("h1").textContent`); got != hostile {
			t.Errorf("the heading is %q", got)
		}
		if got := b.text(t, `document.querySelectorAll("img, iframe, object").length + " " + document.title`); got != "0 "+hostile+" · Psyche" {
			t.Errorf("the name became something else: %s", got)
		}
		row := `document.querySelector("#s-members .claims")`
		if got := b.text(t, row+`.textContent`); got != dashtest.Key(0).ID().String()[:8]+"… "+hostileMember {
			t.Errorf("the member is shown as %q", got)
		}
		if got := b.text(t, row+`.querySelector("bdi").children.length`); got != "0" {
			t.Errorf("its name has %s elements", got)
		}
		if got := b.text(t, `document.querySelectorAll("#command").length`); got != "0" {
			t.Error("there is a command made of it")
		}
	})
	t.Run("everything is shown", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		b.unfold(t)
		for _, heading := range []string{"Final loss", "Evidence", "Members", "Events", "Checkpoints", "Use the model", "Technical details", "Time", "Curves", "Claims", "Configuration"} {
			if got := b.text(t, `[...document.querySelectorAll("h2")].some(h => h.textContent === "`+heading+`")`); got != "true" {
				t.Errorf("section %s is missing", heading)
			}
		}
		log := b.text(t, `document.querySelector("#s-log").textContent`)
		for _, want := range []string{"was ejected until epoch 2: the main authority ejected it", "was dropped: witnesses denied its results of two rounds", "reported another model", "entry "} {
			if !strings.Contains(log, want) {
				t.Errorf("the events do not contain %q", want)
			}
		}
		if got := b.text(t, `document.querySelector('a[href="https://huggingface.co/example/tiny-llama/tree/main"]').rel`); got != "noreferrer noopener" {
			t.Errorf("the link to the checkpoint: %q", got)
		}
	})
	t.Run("transfers", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		said := b.text(t, `[...document.querySelectorAll("#s-members progress")].map(p => p.getAttribute("aria-label") + " = " + p.position.toFixed(2)).join("; ")`)
		if want := "downloading step 12: 3 GiB of 4 GiB = 0.75; uploading step 8: 1 MiB of 4 GiB = 0.00"; said != want {
			t.Errorf("the members' table has the bars %q, want %q", said, want)
		}
		if *pictures == "" {
			return
		}
		b.text(t, `document.querySelector("#h-members").closest("section").scrollIntoView(), ""`)
		b.window(t, "transfers")
	})
	t.Run("claims", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		b.unfold(t)
		if got := b.text(t, `document.querySelector("#loss").textContent`); !strings.HasPrefix(got, "2.7") || !strings.Contains(got, "± 0.00") {
			t.Errorf("the loss is %q", got)
		}
		if got := b.text(t, `document.querySelector('[data-chart="Loss"] .readout').textContent`); !strings.Contains(got, "median claim 2.7") {
			t.Errorf("the chart of the loss reads %q", got)
		}
		if got := b.text(t, `document.querySelector("#held-out").textContent`); !strings.HasPrefix(got, "Held-out 2.") || !strings.Contains(got, ", claimed by ") || !strings.HasSuffix(got, " members") {
			t.Errorf("the held-out loss is %q", got)
		}
		if got := b.text(t, `document.querySelector('[data-chart="Loss"] .readout').textContent`); !strings.Contains(got, "median held-out claim 2.") {
			t.Errorf("the chart of the loss reads %q, want the held-out loss too", got)
		}
		b.heldOut(t)
		boasts := dashtest.Key(shownRun.Boast).ID().String()
		if got := b.text(t, `document.querySelector("#h-claims").closest("section").querySelector(":scope > p .key").title`); got != boasts {
			t.Errorf("far from the median: %q, want %s", got, boasts)
		}
	})
	t.Run("trials", func(t *testing.T) { b.trials(t, web.URL) })
	t.Run("progress", func(t *testing.T) { b.progress(t) })
	t.Run("verifies", func(t *testing.T) { b.verifies(t, web.URL) })
	t.Run("verifies a chain's archive", func(t *testing.T) { b.verifiesChain(t) })
	t.Run("a saved page verifies itself", func(t *testing.T) { b.saved(t) })
	t.Run("keyboard", func(t *testing.T) {
		b.show(t, web.URL, shownRun.RunID, "light", 1280, 900)
		b.do(t, chromedp.KeyEvent(kb.Tab))
		if got := b.text(t, `document.activeElement.className`); got != "skip" {
			t.Errorf("the first stop is %q", got)
		}
		b.do(t, chromedp.Focus(chromedp.CSS("#theme")), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Enter))
		if got := b.text(t, `document.documentElement.dataset.theme + ", " + document.querySelector("#says").textContent`); got != "dark, Theme: dark" {
			t.Errorf("after two presses the theme is %s", got)
		}
		b.do(t, chromedp.KeyEvent(kb.Enter))
		b.unfold(t)
		b.do(t, chromedp.Focus(chromedp.CSS(`[data-chart="Tokens per second"] svg`)), chromedp.KeyEvent(kb.Home))
		if got := b.text(t, `document.querySelector('[data-chart="Tokens per second"] .readout').textContent`); !strings.HasPrefix(got, "Step 1:") {
			t.Errorf("Home on a chart reads %q", got)
		}
		b.do(t, chromedp.Focus(chromedp.CSS(`[data-sort="Lost"]`)), chromedp.KeyEvent(kb.Enter))
		if got := b.text(t, `document.querySelector('th[aria-sort]').textContent + " " + document.activeElement.dataset.sort`); got != "Lost Lost" {
			t.Errorf("after sorting: %s", got)
		}
	})
	close := `[...document.querySelectorAll(".tools")].filter((t) => {
	  const gap = t.closest("figure").nextElementSibling?.getBoundingClientRect().top - t.getBoundingClientRect().bottom;
	  return gap > -1 && gap < 6; }).map((t) => t.textContent).join("; ")`
	for _, theme := range []string{"light", "dark"} {
		for name, size := range map[string][2]int64{"wide": {1400, 1000}, "small": {360, 740}} {
			t.Run(theme+" "+name, func(t *testing.T) {
				for _, run := range []string{courtRun.RunID, shownRun.RunID} {
					b.show(t, web.URL, run, theme, size[0], size[1])
					if got := b.text(t, `document.documentElement.scrollWidth <= innerWidth`); got != "true" {
						t.Errorf("the page of %s is wider than the window: %s", run, b.text(t, `document.documentElement.scrollWidth`))
					}
					if got := b.text(t, close); got != "" {
						t.Errorf("buttons touch the elements below them: %s", got)
					}
					b.axe(t)
				}
				b.picture(t, theme+"-"+name)
			})
		}
	}
	if said := b.said(); said != "" {
		t.Errorf("the browser reported errors:\n%s", said)
	}
}

// trials checks that the page shows the members that a jury ejected, the reason, the end of the
// ejection, and the entry that ejected them.
func (b *browser) trials(t *testing.T, address string) {
	b.show(t, address, courtRun.RunID, "light", 1400, 1000)
	cheat := dashtest.Key(courtRun.Cheat).ID().String()
	row := b.text(t, `[...document.querySelectorAll("#s-members tbody tr")].find(r => r.querySelector(".key").title === "`+cheat+`").textContent`)
	for _, want := range []string{"ejected: a jury found it guilty (wrong result)", "epoch 4", "(entry "} {
		if !strings.Contains(row, want) {
			t.Errorf("the cheater's row does not contain %q: %q", want, row)
		}
	}
	if got := b.text(t, `document.querySelector("#s-members").textContent`); !strings.Contains(got, "2 passed, 1 unclear") {
		t.Errorf("the members' table has no claims: %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS("#find-ejected")))
	if got := b.text(t, `[...document.querySelectorAll("#s-members tbody tr")].map(r => r.cells[1].textContent.split(":")[0]).join(" ")`); got != "ejected ejected" {
		t.Errorf("ejected members in the table: %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS("#find-ejected")))
	b.unfold(t)
	past := b.text(t, `document.querySelector("#s-past-trials").textContent`)
	for _, want := range []string{"guilty: " + cheat[:8] + "… is ejected (entry ", "innocent: " + dashtest.Key(courtRun.Slander).ID().String()[:8] + "… is ejected", "wrong result"} {
		if !strings.Contains(past, want) {
			t.Errorf("the trials do not say %q: %q", want, past)
		}
	}
	log := b.text(t, `document.querySelector("#s-log").textContent`)
	for _, want := range []string{"was ejected until epoch 4: a jury found it guilty (wrong result)", "A jury votes.", "is over: guilty, "} {
		if !strings.Contains(log, want) {
			t.Errorf("the events do not contain %q", want)
		}
	}
	b.do(t, chromedp.Focus(chromedp.CSS(`[data-sort="Tried"]`)), chromedp.KeyEvent(kb.Enter))
	if got := b.text(t, `document.querySelector('#s-members tbody .key').title`); got != cheat {
		t.Errorf("by trials the first member is %s", got)
	}
	if *pictures == "" {
		return
	}
	b.show(t, address, courtRun.RunID, "light", 1440, 900)
	b.text(t, `document.querySelector("#h-evidence").closest("section").scrollIntoView(), ""`)
	b.window(t, "dashboard-trials")
}

// progress checks that a log without new entries is shown as silent, and that the page derives the
// remaining time of a run, and the event that it waits for, from the run's rounds and state.
// Overlays of charts, and the cursor in a chart, stay as the reader set them.
func (b *browser) progress(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gone.journal")
	if err := dashtest.Write(path, shownRun); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, log[:len(log)/2], 0o600); err != nil { // the log ends in a round; the page ignores the torn last line
		t.Fatal(err)
	}
	g := gather.New(t.Context(), gather.Options{})
	defer g.Close()
	if err := g.Watch([]string{dir}, func(_ string, f *gather.Found) {
		f.Join, f.Source = dash.Join{Server: dash.HostPlaceholder + ":39405", Parameters: 1 << 30, Install: "curl URL | sh"}, "a run that the tests make"
	}); err != nil {
		t.Fatal(err)
	}
	for len(g.Runs()) == 0 || g.Runs()[0].Log.View().State == nil {
		time.Sleep(5 * time.Millisecond)
	}
	web := httptest.NewServer(dash.New(g.Runs, nil))
	defer web.Close()
	defer b.do(t, chromedp.Navigate("about:blank")) // a page without its server complains
	b.show(t, web.URL, g.Runs()[0].Key, "light", 1440, 900)
	if got := b.text(t, `document.querySelector("#title").closest("section").textContent`); !strings.Contains(got, "Dead: the host last answered ") || !strings.Contains(got, "No entry since 2025-10-09") || strings.Contains(got, "Ends about") {
		t.Errorf("for a log without new entries the page shows %q", got)
	}
	for subject, below := range map[string]string{"the loss": `#loss`, "the alarm": `[role="alert"]`} {
		if got := b.text(t, `document.querySelector('`+below+`').getBoundingClientRect().bottom < innerHeight`); got != "true" {
			t.Errorf("%s is not on the first screen", subject)
		}
	}
	command := b.text(t, `document.querySelector("#command").textContent`)
	link, _ := strings.CutPrefix(command, "psyche-client join ")
	if l, err := invite.Parse(link); err != nil || l.Addr() != "127.0.0.1:39405" || l.RunID != shownRun.RunID || l.Key != dashtest.Key(-1).ID() {
		t.Errorf("the command to join is %q: %v", command, err)
	}
	if got := b.text(t, `[...document.querySelectorAll(".invitation pre")].map((e) => e.textContent).join("\n")`); got != "curl URL | sh\n"+command {
		t.Errorf("the commands to take part are %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS("#take-part")))
	b.text(t, `(async () => { const end = Date.now() + 20000; while (!(document.querySelector(".qr").naturalWidth > 0)) { if (Date.now() > end) throw new Error("there is no QR code"); await new Promise((go) => setTimeout(go, 20)); } return ""; })()`)
	if got := b.text(t, `document.querySelector("#needs").textContent`); got != "Memory12 GiBat least, plus a batchDisk20 GiBfor three checkpointsModel4 GiBto get firstIn a roundabout 3.25 MiBto and from each other trainer" {
		t.Errorf("needs of taking part: %q", got)
	}
	if *pictures != "" {
		b.window(t, "take-part")
	}
	b.axe(t)
	b.do(t, chromedp.KeyEvent(kb.Escape))
	if got := b.text(t, `document.querySelector("#invite").open + " " + document.activeElement.id`); got != "false take-part" {
		t.Errorf("after Escape the invitation is open, or the focus is elsewhere: %s", got)
	}
	left := `(async () => { const m = await import("/progress.js"), w = (ms) => [0, 0, 0, ms, 0, 0, 0, 0];
	  const data = { status: { run_state: "RoundTrain", step: 41, total_steps: 100 }, history: { rounds: Array.from({ length: 40 }, (_, i) => ({ n: 1, w: w(1000 + 50 * (i % 5)) })) } };
	  return JSON.stringify(m.left(data)); })()`
	if got := b.text(t, left); got != `{"likely":66000,"least":63000,"most":69000}` { // 60 steps of 1.05 to 1.15 s
		t.Errorf("remaining: %s", got)
	}
	waits := `(async () => (await import("/progress.js")).waits({ status: { run_state: "WaitingForMembers", pending: ["a"], config: { init_min_clients: 3 } } }).textContent)()`
	if got := b.text(t, waits); got != "1 of 3 needed members are here: a…." {
		t.Errorf("the page reports %q", got)
	}
	b.text(t, `document.querySelector("#axes-x").value = "tokens", document.querySelector("#axes-x").dispatchEvent(new Event("change")), document.querySelector("#axes-log").click(), ""`)
	b.unfold(t)
	b.do(t, chromedp.Focus(chromedp.CSS(`[data-chart="Tokens per second"] svg`)), chromedp.KeyEvent(kb.Home))
	readout := `document.querySelector('[data-chart="Tokens per second"] .readout').textContent`
	first := b.text(t, readout)
	b.text(t, `document.querySelector("#find").dispatchEvent(new Event("input")), ""`) // it redraws the whole page
	if again := b.text(t, readout); !strings.HasPrefix(first, "Tokens ") || again != first {
		t.Errorf("the cursor reads %q, and after a redraw %q", first, again)
	}
	b.axe(t)
	if *pictures != "" {
		b.text(t, `scrollTo(0, 0), ""`)
		b.window(t, "silent")
	}
}

// verified waits until the page shows the result of the check of its log.
func (b *browser) verified(t *testing.T) string {
	t.Helper()
	found := `document.querySelector("#h-believe-nothing").closest("section").querySelector("p[role=status], p[role=alert]")`
	b.text(t, `(async () => { while (!(`+found+`)) await new Promise((go) => setTimeout(go, 50)); })()`)
	return b.text(t, found+`.textContent`)
}

// verifies checks that the browser can verify the log of a run.
func (b *browser) verifies(t *testing.T, address string) {
	if built() == nil {
		t.Skip("the verifier was not built (make verifier): not tested in a browser")
	}
	b.show(t, address, courtRun.RunID, "light", 1400, 1000)
	b.do(t, chromedp.Click(chromedp.CSS("#verify")))
	if said := b.verified(t); !strings.HasPrefix(said, "Verified by your browser. ") {
		t.Errorf("the page reports %q", said)
	}
	b.names(t)
	b.axe(t)
	if *pictures != "" {
		b.paste(t, b.text(t, `document.querySelector("#verify-told").closest("section").querySelector("dd").textContent`), "It is. ")
		b.text(t, `document.querySelector("#proven").open = true, document.querySelector("#h-believe-nothing").closest("section").scrollIntoView(), ""`)
		b.window(t, "dashboard-verified")
	}
}

// saved checks that the browser opens saved pages: a valid page, and a page whose log was changed.
func (b *browser) saved(t *testing.T) {
	verifier := built()
	if verifier == nil {
		t.Skip("the verifier was not built (make verifier): no page was saved")
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := dashtest.Write(path, courtRun); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	forged := slices.Clone(log)
	forged[len(forged)/2] ^= 1
	chainPath := filepath.Join(t.TempDir(), "archive")
	if _, err := dashtest.WriteArchive(chainPath, chainRun); err != nil {
		t.Fatal(err)
	}
	chain, err := os.ReadFile(chainPath)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		log  []byte
		says string
	}{"sound": {log, "Verified by your browser. "}, "chain": {chain, "Verified by your browser. "}, "forged": {forged, "Not verified. the log does not verify: entry "}} {
		var page strings.Builder
		if err := verifier.Save(&page, test.log, verify.Told{}, "</script><img src=x>"); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name+".html")
		if err := os.WriteFile(file, []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		b.do(t, chromedp.Navigate("file://"+file), chromedp.WaitVisible(chromedp.CSS("#title")))
		if said := b.verified(t); !strings.HasPrefix(said, test.says) {
			t.Errorf("%s: the page reports %q", name, said)
		}
		if name == "forged" {
			continue
		}
		b.unfold(t)
		for _, heading := range []string{"Final loss", "Members", map[string]string{"sound": "Trials", "chain": "Costs on the chain"}[name], "Events"} {
			if got := b.text(t, `[...document.querySelectorAll("h2")].some(h => h.textContent === "`+heading+`")`); got != "true" {
				t.Errorf("section %s is missing", heading)
			}
		}
		b.text(t, `document.querySelector("#last").value = "100", document.querySelector("#last").dispatchEvent(new Event("change")), ""`)
		b.axe(t)
	}
}

// window saves a screenshot of the window to the folder of -dash.pictures.
func (b *browser) window(t *testing.T, name string) {
	t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), fewColours(t, image), 0o644); err != nil {
		t.Fatal(err)
	}
}

// axe fails the test if axe-core finds a serious problem, and returns the number of all problems in words.
func (b *browser) axe(t *testing.T) string {
	t.Helper()
	path := os.Getenv(axeVariable)
	if path == "" {
		t.Logf("%s names no axe.min.js (npm pack axe-core): accessibility was not checked", axeVariable)
		return "not checked"
	}
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b.text(t, string(script)+"; true")
	found := b.text(t, `axe.run({resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary])))`)
	var violations [][]any
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		if v[0] == "serious" || v[0] == "critical" {
			t.Errorf("axe: %v", v)
		} else {
			t.Logf("axe: %v", v)
		}
	}
	return fmt.Sprintf("%d problems", len(violations))
}

// picture saves a screenshot of the whole page to the folder of -dash.pictures.
func (b *browser) picture(t *testing.T, name string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	full, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), full, 0o644); err != nil {
		t.Fatal(err)
	}
}
