package dash_test

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/record/invite"
)

// chainRun is a run on a chain.
var chainRun = dashtest.Options{RunID: "on-chain", Members: 12, Rounds: 40, RoundsPerEpoch: 10, Silent: 4, Eject: 5, Boast: 2}

// verifiesChain checks that the browser verifies the archive of a run on a chain and compares its
// head.
func (b *browser) verifiesChain(t *testing.T) {
	if built() == nil {
		t.Skip("the verifier was not built (make verifier): not tested in a browser")
	}
	dir := t.TempDir()
	header, err := dashtest.WriteArchive(filepath.Join(dir, "on-chain.archive"), chainRun)
	if err != nil {
		t.Fatal(err)
	}
	g := gather.New(t.Context(), gather.Options{})
	defer g.Close()
	if err := g.Watch([]string{dir}, nil); err != nil {
		t.Fatal(err)
	}
	for len(g.Runs()) == 0 || g.Runs()[0].Log.View().State == nil {
		time.Sleep(5 * time.Millisecond)
	}
	web := httptest.NewServer(dash.New(g.Runs, built()))
	defer web.Close()
	defer b.do(t, chromedp.Navigate("about:blank")) // a page without its server complains
	b.show(t, web.URL, chainRun.RunID, "light", 1400, 1000)
	b.do(t, chromedp.Click(chromedp.CSS("#verify")))
	if said := b.verified(t); !strings.HasPrefix(said, "Verified by your browser. ") || !strings.Contains(said, "compare the head of the log with the head of the run's account") {
		t.Errorf("the page reports %q", said)
	}
	source := `document.querySelector("#h-members").nextElementSibling.textContent`
	if got := b.text(t, source); !strings.HasPrefix(got, "Follows from signed actions") {
		t.Errorf("source of the members' table before the head was compared: %q", got)
	}
	fact := func(name string) string {
		return b.text(t, `[...document.querySelector("#verify-told").closest("section").querySelectorAll("dt")].find(d => d.textContent.startsWith("`+name+`")).nextElementSibling.textContent`)
	}
	if got := fact("account"); got != header.Run.String() {
		t.Errorf("the account is %s, not %s", got, header.Run)
	}
	link := invite.ChainLink{Program: identity.ID(header.Program), RunID: chainRun.RunID, Authority: dashtest.Key(-1).ID(), RPC: []string{"http://h"}}
	other := link
	other.Program = identity.ID(transaction.PublicKey{8})
	for text, want := range map[string]string{
		"'" + link.String() + "'": "It is.",
		other.String():            "It is not: that names another run, or another program.",
		header.Run.String():       "It is.",
		strings.Repeat("0", 64):   "This log never had that head",
	} {
		b.paste(t, text, want)
	}
	b.paste(t, fact("head, after event"), "If that is the head of the run's account, this log matches the chain, complete and unchanged")
	if got := b.text(t, source); !strings.HasPrefix(got, "Proven in this browser") {
		t.Errorf("source of the members' table with the account's head: %q", got)
	}
	b.axe(t)
	if *pictures != "" {
		b.text(t, `document.querySelector("#proven").open = true, document.querySelector("#h-believe-nothing").closest("section").scrollIntoView(), ""`)
		b.window(t, "dashboard-chain")
	}
}

// paste enters a link, hash or head that a third party gave to the reader, and checks the page's
// answer.
func (b *browser) paste(t *testing.T, text, want string) {
	t.Helper()
	b.text(t, `(() => { const field = document.querySelector("#verify-told"); field.value = "`+text+`"; field.dispatchEvent(new Event("input")); return ""; })()`)
	said := `document.querySelector("#verify-told").closest("section").querySelector("label ~ p[role=status]")?.textContent || ""`
	got := b.text(t, `(async () => { const end = Date.now() + 5000, want = "`+want+`"; let said = ""; while (Date.now() < end && !(said = `+said+`).startsWith(want)) await new Promise((go) => setTimeout(go, 20)); return said; })()`)
	if !strings.HasPrefix(got, want) {
		t.Errorf("for %s: %q, want %q", text, got, want)
	}
}
