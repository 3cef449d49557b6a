package dash_test

import (
	"compress/gzip"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
)

// mostAssets is the most that a reader's browser fetches for the page, in bytes as transferred.
const mostAssets = 100 << 10

// TestAssetsAreSmall checks the size of the page's files together.
func TestAssetsAreSmall(t *testing.T) {
	files, err := os.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, file := range files {
		if filepath.Ext(file.Name()) == ".json" { // for other programs
			continue
		}
		content, err := os.ReadFile(filepath.Join("assets", file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var packed strings.Builder
		to := gzip.NewWriter(&packed)
		if _, err := to.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		total += packed.Len()
	}
	t.Logf("%d files, %d KiB packed", len(files), total>>10)
	if total > mostAssets {
		t.Errorf("the page's files have %d bytes packed, want %d at most", total, mostAssets)
	}
}

// TestPreview checks that previews of the page's address show the run's name as text, its progress and a picture.
func TestPreview(t *testing.T) {
	o := dashtest.Options{RunID: "tiny", Title: `Ada's "model" <script>`, Members: 4, Rounds: 4, RoundsPerEpoch: 4}
	web := page(t, o)
	got := ask(t, web.URL+"/", nil).body
	for _, want := range []string{
		`<meta property="og:title" content="Ada&#39;s &#34;model&#34; &lt;script&gt;">`, `<meta property="og:description" content="Finished after 4 rounds. Verify it in your browser.">`,
		`<meta property="og:image" content="` + web.URL + `/card.png">`, `<meta name="twitter:card" content="summary_large_image">`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %s:\n%s", want, got)
		}
	}
	if secure := ask(t, web.URL+"/", http.Header{"X-Forwarded-Proto": {"https"}}).body; !strings.Contains(secure, `content="https://`) {
		t.Error("behind a proxy with TLS, the picture has no https address")
	}
	o.RunID = "second"
	if several := ask(t, page(t, o, dashtest.Options{RunID: "third", Members: 4, Rounds: 4, RoundsPerEpoch: 4}).URL+"/", nil).body; !strings.Contains(several, `content="Psyche: 2 training runs"`) {
		t.Errorf("of two runs: %s", several)
	}
}

// TestIndexIsKept checks that the page is compressed once until it changes.
func TestIndexIsKept(t *testing.T) {
	p := dash.New(func() []dash.Run { return nil }, nil)
	first, err := dash.PackIndex(p, "a page")
	if err != nil {
		t.Fatal(err)
	}
	again, err := dash.PackIndex(p, "a page")
	if err != nil || again != first {
		t.Errorf("%v, or the same page was compressed again", err)
	}
	if changed, err := dash.PackIndex(p, "another page"); err != nil || changed == first {
		t.Errorf("%v, or a changed page is not sent", err)
	}
}

// TestIcon checks that the icon has a colour for each state.
func TestIcon(t *testing.T) {
	web := page(t, dashtest.Options{RunID: "tiny", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	seen := map[string]bool{}
	for _, tone := range []string{"", "?tone=good", "?tone=warn", "?tone=bad", "?tone=muted"} {
		icon := ask(t, web.URL+"/icon.svg"+tone, nil)
		if icon.status != http.StatusOK || icon.header.Get("Content-Type") != "image/svg+xml" || seen[icon.body] {
			t.Errorf("%q: %d, %s", tone, icon.status, icon.body)
		}
		seen[icon.body] = true
	}
}
