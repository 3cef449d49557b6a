package dash_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/gather"
)

// shot is a picture of the top of a run's page.
type shot struct {
	name, theme   string
	width, height int64
}

// TestPictures takes pictures for the documentation: of a generated run with many members, and of a
// real run, running or finished, in the folder that -dash.of names. The name of each picture
// describes the state of the run.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("-dash.pictures names no folder for pictures")
	}
	b := open(t)
	t.Run("crowd", func(t *testing.T) {
		crowd := dashtest.Options{RunID: "crowd", Members: 160, Rounds: 60, RoundsPerEpoch: 20, Silent: 4, Hang: 9, Eject: 5, Wrong: 3, Boast: 2, Audits: 10, Cheat: 11, Slander: 12}
		web := page(t, crowd)
		b.show(t, web.URL, crowd.RunID, "light", 1440, 900)
		b.text(t, `document.querySelector("#s-members").closest("section").scrollIntoView(), ""`)
		b.window(t, "dashboard-crowd")
	})
	if *ofFolder == "" {
		t.Log("-dash.of names no folder with a run: there are no pictures of one")
		return
	}
	g := gather.New(t.Context(), gather.Options{})
	defer g.Close()
	if err := g.Watch([]string{*ofFolder}, func(_ string, f *gather.Found) { f.Source = "a run on one machine" }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // until everything has been read
	runs := g.Runs()
	if len(runs) == 0 || runs[0].Log.View().State == nil {
		t.Fatalf("%s has no run that can be read", *ofFolder)
	}
	web := httptest.NewServer(dash.New(g.Runs, built()))
	defer web.Close()
	defer b.do(t, chromedp.Navigate("about:blank")) // a page without its server complains
	shots := []shot{{"dashboard-live", "light", 1440, 900}}
	switch runs[0].Log.View().State.RunState {
	case coordinator.WaitingForMembers:
		shots[0].name = "dashboard-waiting"
	case coordinator.Finished:
		shots = []shot{{"dashboard", "light", 1300, 1640}, {"dashboard-dark", "dark", 1440, 900}, {"dashboard-small", "dark", 390, 844}}
	}
	b.shoot(t, web.URL, runs[0].Key, shots)
}

// shoot takes pictures of a run's page, and logs where the loss curve begins and ends in each
// window.
func (b *browser) shoot(t *testing.T, address, run string, shots []shot) {
	t.Helper()
	for _, s := range shots {
		b.show(t, address, run, s.theme, s.width, s.height)
		place := b.text(t, `(() => { const r = document.querySelector('[data-chart="Loss"] svg')?.getBoundingClientRect(); return r ? Math.round(r.top) + " to " + Math.round(r.bottom) : "nowhere"; })()`)
		metric := b.text(t, `(() => { const r = document.querySelector(".tiles dd")?.getBoundingClientRect(); return r ? Math.round(r.bottom) : "nowhere"; })()`)
		t.Logf("%s, %d × %d: the first metric ends at %s, the curve of the loss is at %s", s.name, s.width, s.height, metric, place)
		if s.width < 500 || s.height > 1000 {
			b.text(t, `document.querySelector("h1").closest("section").scrollIntoView(), ""`)
		}
		b.window(t, s.name)
	}
}

// fewColours reduces a screenshot to its 256 most frequent colours, which needs a third of the
// space. The other colours are shades at the edges of letters.
func fewColours(t *testing.T, screenshot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(screenshot))
	if err != nil {
		t.Fatal(err)
	}
	bounds, count := full.Bounds(), map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[rgba(full.At(x, y))]++
		}
	}
	all := make([]color.RGBA, 0, len(count))
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var kept color.Palette
	for _, c := range all[:min(len(all), 256)] {
		kept = append(kept, c)
	}
	nearest := make(map[color.RGBA]uint8, len(all))
	for _, c := range all {
		nearest[c] = uint8(kept.Index(c))
	}
	small := image.NewPaletted(bounds, kept)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[rgba(full.At(x, y))])
		}
	}
	var packed bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&packed, small); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func rgba(c color.Color) color.RGBA {
	r, g, b, _ := c.RGBA()
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
}
