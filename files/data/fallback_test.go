package data

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/web"
	"github.com/psyche-go/psyche/record/config"
)

var seeded = config.Shuffle{Seed: &[32]byte{7}}

func TestAllSourcesGiveTheSameTokens(t *testing.T) {
	dir := files(t)
	base := serve(t, http.FileServer(http.Dir(dir)))
	for _, shuffle := range []config.Shuffle{{}, seeded} {
		folder := open4(t, Options{}, local(dir, config.TwoBytes, shuffle))
		server := open4(t, Options{}, urls(base, shuffle))
		if folder.Len() != 18 || server.Len() != 18 {
			t.Fatalf("%d and %d sequences, want 18", folder.Len(), server.Len())
		}
		want := read(t, folder, 0, 40)
		same(t, want, read(t, server, 0, 40))
		for i := range uint64(40) { // one after the other: read ahead
			same(t, want[i:i+1], read(t, server, i, i+1))
		}
	}
}

func TestNumberedFilesAreReadInTheOrderOfTheirNumbers(t *testing.T) {
	dir := t.TempDir()
	for i := 9; i <= 11; i++ {
		write(t, filepath.Join(dir, fmt.Sprintf("part-%03d.ds", i)), 100*i, 5)
	}
	base := serve(t, http.FileServer(http.Dir(dir)))
	p := open4(t, Options{}, config.DataLocation{HTTP: &config.HTTPData{TokenSize: config.TwoBytes, Location: config.HTTPLocation{
		NumberedFiles: &config.NumberedFiles{URLTemplate: base + "/part-{}.ds", StartIndex: 9, NLeftPadZeros: 3, NumFiles: 3},
	}}})
	same(t, [][]int32{{900, 901, 902, 903, 904}, {1000, 1001, 1002, 1003, 1004}, {1100, 1101, 1102, 1103, 1104}}, read(t, p, 0, 3))
}

// TestTheNextLocationTakesOver truncates a file and expects the remaining tokens from the server.
func TestTheNextLocationTakesOver(t *testing.T) {
	dir, copied := files(t), t.TempDir()
	base := serve(t, http.FileServer(http.Dir(dir)))
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	want := read(t, open4(t, Options{}, local(dir, config.TwoBytes, seeded)), 0, 18)
	var got []Serving
	p := open4(t, Options{Serving: func(s Serving) { got = append(got, s) }},
		config.DataLocation{Dummy: &config.DummyData{Failing: true}}, local(copied, config.TwoBytes, seeded), urls(base, seeded))
	same(t, want[:3], read(t, p, 0, 3))
	for _, name := range []string{"2.ds", "10.ds"} {
		if err := os.Truncate(filepath.Join(copied, name), 8); err != nil {
			t.Fatal(err)
		}
	}
	same(t, want[3:], read(t, p, 3, 18))
	var locations []int
	for _, s := range got {
		locations = append(locations, s.Index)
	}
	if diff := cmp.Diff([]int{1, 2}, locations); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if !errors.Is(got[0].Because, errFailing) || !errors.Is(got[1].Because, tokens.ErrChanged) {
		t.Errorf("reasons: %v, %v", got[0].Because, got[1].Because)
	}
	if !strings.HasPrefix(got[1].Location, "Http "+base) {
		t.Errorf("serving %s", got[1].Location)
	}
}

func TestOtherDataDoesNotTakeOver(t *testing.T) {
	longer, shifted := files(t), files(t)
	write(t, filepath.Join(longer, "11.ds"), 0, 5)
	write(t, filepath.Join(shifted, "2.ds"), 1001, 41)
	write(t, filepath.Join(shifted, "10.ds"), 2001, 33)
	for name, other := range map[string]config.DataLocation{
		"more sequences": local(longer, config.TwoBytes, seeded),
		"another order":  local(files(t), config.TwoBytes, config.Shuffle{}),
		"other tokens":   local(shifted, config.TwoBytes, seeded),
		"zeros":          {Dummy: &config.DummyData{}},
	} {
		dir := files(t)
		p := open4(t, Options{}, local(dir, config.TwoBytes, seeded), other)
		read(t, p, 0, 3)
		for _, file := range []string{"2.ds", "10.ds"} {
			if err := os.Truncate(filepath.Join(dir, file), 8); err != nil {
				t.Fatal(err)
			}
		}
		_, err := p.Batch(context.Background(), assign.BatchID{End: 18})
		if !errors.Is(err, ErrOtherData) || !errors.Is(err, tokens.ErrChanged) || !IsPermanent(err) {
			t.Errorf("%s: got %v; want error ErrOtherData and error tokens.ErrChanged and IsPermanent(err)", name, err)
		}
	}
}

// TestServerIsKilledAndRestarted stops the only server and restarts it on the same port.
func TestServerIsKilledAndRestarted(t *testing.T) {
	dir := files(t)
	want := read(t, open4(t, Options{}, local(dir, config.TwoBytes, seeded)), 0, 18)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start := func(l net.Listener) *http.Server {
		server := &http.Server{Handler: http.FileServer(http.Dir(dir))}
		go func() { _ = server.Serve(l) }()
		return server
	}
	server := start(listener)
	address := listener.Addr().String()
	p := open4(t, Options{}, urls("http://"+address, seeded))
	same(t, want[:2], read(t, p, 0, 2))
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Batch(context.Background(), assign.BatchID{Start: 2, End: 4}); err == nil || IsPermanent(err) {
		t.Errorf("without the server: %v", err)
	}
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Skip("a different process took the port:", err)
	}
	server = start(listener)
	defer func() { _ = server.Close() }()
	same(t, want[2:], read(t, p, 2, 18))
}

// TestAFileReplacedOnTheServer replaces a file by a file of the same length: only its version
// differs.
func TestAFileReplacedOnTheServer(t *testing.T) {
	dir := files(t)
	base := serve(t, http.FileServer(http.Dir(dir)))
	p := open4(t, Options{}, urls(base, config.Shuffle{}))
	read(t, p, 0, 1)
	write(t, filepath.Join(dir, "2.ds"), 1500, 41)
	if err := os.Chtimes(filepath.Join(dir, "2.ds"), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, err := p.Batch(context.Background(), assign.BatchID{Start: 1, End: 2})
	if !errors.Is(err, tokens.ErrChanged) || !IsPermanent(err) || !strings.Contains(err.Error(), "/2.ds") {
		t.Errorf("got %v; want error tokens.ErrChanged and IsPermanent(err) and text with \"/2.ds\"", err)
	}
	// A permanent error of a location stays permanent when the client tries again.
	if _, again := p.Batch(context.Background(), assign.BatchID{Start: 12, End: 13}); !errors.Is(again, tokens.ErrChanged) {
		t.Errorf("got %v; want error tokens.ErrChanged", again)
	}
}

// TestAHangingLocationGetsItsShareOfTheTime reads within a deadline from the second location
// although the first location never answers again.
func TestAHangingLocationGetsItsShareOfTheTime(t *testing.T) {
	dir := files(t)
	var hang atomic.Bool
	base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hang.Load() {
			<-r.Context().Done()
			return
		}
		http.FileServer(http.Dir(dir)).ServeHTTP(w, r)
	}))
	p := open4(t, Options{}, urls(base, seeded), local(dir, config.TwoBytes, seeded))
	first := read(t, p, 0, 1)
	hang.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	got, err := p.Batch(ctx, assign.BatchID{Start: 0, End: 1})
	if err != nil {
		t.Fatal(err)
	}
	same(t, first, got.Sequences)
}

func TestAnErrorThatMayPassIsNotPermanent(t *testing.T) {
	dir := files(t)
	var down atomic.Bool
	base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.FileServer(http.Dir(dir)).ServeHTTP(w, r)
	}))
	changing := files(t)
	p := open4(t, Options{}, local(changing, config.TwoBytes, seeded), urls(base, seeded))
	read(t, p, 0, 1)
	for _, file := range []string{"2.ds", "10.ds"} {
		if err := os.Truncate(filepath.Join(changing, file), 8); err != nil {
			t.Fatal(err)
		}
	}
	down.Store(true)
	_, err := p.Batch(context.Background(), assign.BatchID{Start: 1, End: 2})
	if IsPermanent(err) || !errors.Is(err, web.ErrStatus) {
		t.Errorf("got %v, want ErrStatus", err)
	}
	golden.Message(t, "changed folder and missing URL", err, "/10.ds", "/2.ds") // whichever file is read first
	down.Store(false)
	read(t, p, 1, 2)
}
