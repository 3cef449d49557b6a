package dash_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/verify"
)

// standIn returns a verifier whose files are fakes.
func standIn(t *testing.T) *dash.Verifier {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"verifier.wasm.gz": "program", "wasm_exec.js": "// loader </script>\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v, err := dash.ReadVerifier(dir)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLogInParts fetches a log as a browser does, and requests parts that do not exist.
func TestLogInParts(t *testing.T) {
	o := dashtest.Options{RunID: "tiny", Members: 12, Rounds: 60, RoundsPerEpoch: 20}
	web := pageWith(t, standIn(t), o)
	var run struct {
		Log struct {
			Records int
			Bytes   int
			Head    string
		}
	}
	if err := json.Unmarshal([]byte(ask(t, web.URL+"/api/run?run=tiny", nil).body), &run); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for log.Len() < run.Log.Bytes {
		part := ask(t, web.URL+"/api/journal?run=tiny&from="+strconv.Itoa(log.Len()), nil)
		if part.status != http.StatusOK || part.body == "" {
			t.Fatalf("from %d: %+v", log.Len(), part)
		}
		log.WriteString(part.body)
	}
	v := verify.New()
	_, err := v.Write(log.Bytes())
	if r := v.Close(verify.Told{Records: run.Log.Records, Head: run.Log.Head}); err != nil || !r.Verified || r.Bytes != int64(run.Log.Bytes) {
		t.Errorf("%v, %+v", err, r)
	}
	for query, status := range map[string]int{
		"run=tiny&from=" + strconv.Itoa(run.Log.Bytes): http.StatusNotFound,
		"run=tiny&from=-1":                  http.StatusBadRequest,
		"run=tiny&from=9223372036854775807": http.StatusNotFound,
		"run=tiny&from=9223372036854775808": http.StatusBadRequest,
		"run=tiny":                          http.StatusBadRequest,
		"run=other&from=0":                  http.StatusNotFound,
	} {
		if got := ask(t, web.URL+"/api/journal?"+query, nil); got.status != status {
			t.Errorf("%s: %d, want %d", query, got.status, status)
		}
	}
	if got := ask(t, web.URL+"/verifier.wasm", http.Header{"Accept-Encoding": {"gzip"}}); got.header.Get("Content-Type") != "application/wasm" || got.body != "program" {
		t.Errorf("the verifier: %+v", got)
	}
	bare := pageWith(t, nil, o)
	for _, path := range []string{"/api/journal?run=tiny&from=0", "/verifier.wasm", "/wasm_exec.js"} {
		if got := ask(t, bare.URL+path, nil); got.status != http.StatusNotFound {
			t.Errorf("without a verifier %s: %d", path, got.status)
		}
	}
}

// TestLogReadersTakeTurns has a reader follow a log while many others request it without pause.
func TestLogReadersTakeTurns(t *testing.T) {
	handler := pageWith(t, standIn(t), dashtest.Options{RunID: "tiny", Members: 12, Rounds: 60, RoundsPerEpoch: 20}).Config.Handler
	read := func(ctx context.Context, remote string) (status int, again string) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/journal?run=tiny&from=0", nil)
		r.RemoteAddr = remote
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, w.Header().Get("Retry-After")
	}
	enough := int64(34) // parts that use up the first 8 MiB
	for _, test := range []struct {
		name   string
		greedy func(i int) string
		number int
		reader string
	}{
		{"another network", func(int) string { return "203.0.113.9:80" }, 60, "203.0.113.8:80"},
		{"many networks of one IPv6 site", func(i int) string { return fmt.Sprintf("[2001:db8:1:%x::1]:80", i) }, 60, "[2001:db8:2::1]:80"},
		{"the same address, as behind a proxy", func(int) string { return "127.0.0.1:80" }, 4, "127.0.0.1:81"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		var took, refused atomic.Int64
		for i := range test.number {
			reading.Go(func() {
				for ctx.Err() == nil {
					switch status, again := read(ctx, test.greedy(i)); {
					case status == http.StatusOK:
						took.Add(1)
					case status != http.StatusTooManyRequests || again != "1":
						t.Errorf("status %d, Retry-After %q", status, again)
					default:
						refused.Add(1)
					}
				}
			})
		}
		for deadline := time.Now().Add(time.Minute); took.Load() < enough && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		enough = 1
		got, began := 0, time.Now()
		for range 10 {
			if status, _ := read(ctx, test.reader); status == http.StatusOK {
				got++
			}
		}
		elapsed := time.Since(began)
		cancel()
		reading.Wait()
		t.Logf("%s: the reader got %d of 10 parts in %v; %d greedy readers got %d, and %d refusals", test.name, got,
			elapsed.Round(10*time.Millisecond), test.number, took.Load(), refused.Load())
		if got < 8 {
			t.Errorf("%s: the reader got %d of 10 parts", test.name, got)
		}
		if test.number > 24 && refused.Load() == 0 {
			t.Errorf("%s: the page gives more than its rate", test.name)
		}
	}
}

// TestSavedPageIsOneFile checks that a saved page loads nothing from elsewhere, and that no text
// ends a part of the page early.
func TestSavedPageIsOneFile(t *testing.T) {
	var page strings.Builder
	if err := standIn(t).Save(&page, []byte("log"), verify.Told{Run: "ab"}, "</script><script>alert(1)</script>"); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, never := range []string{"alert(1)</script>", "src=", "href=\"icon", "<link", "loader </script>"} {
		if strings.Contains(text, never) {
			t.Errorf("it has %q", never)
		}
	}
	if opened, closed := strings.Count(text, "<script"), strings.Count(text, "</script>"); opened != 6 || closed != 6 {
		t.Errorf("%d scripts begin, %d end", opened, closed)
	}
	if err := standIn(t).Save(&page, make([]byte, dash.MaxSavedLog+1), verify.Told{}, ""); err == nil {
		t.Error("a log of any length is saved")
	}
}

// TestFilesArePacked checks that browsers get the page's files compressed, that other clients get
// them uncompressed, and that a client with a current copy gets no file.
func TestFilesArePacked(t *testing.T) {
	web := pageWith(t, standIn(t), dashtest.Options{RunID: "tiny", Members: 2, Rounds: 2, RoundsPerEpoch: 2})
	plain, packed := 0, 0
	for _, path := range []string{"/", "/app.js", "/charts.js", "/style.css", "/icon.svg", "/worker.js"} {
		as := ask(t, web.URL+path, http.Header{"Accept-Encoding": {"identity"}})
		sent := ask(t, web.URL+path, http.Header{"Accept-Encoding": {"gzip"}})
		from, err := gzip.NewReader(strings.NewReader(sent.body))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		got, err := io.ReadAll(from)
		if err != nil || string(got) != as.body || sent.header.Get("Content-Encoding") != "gzip" || sent.header.Get("Content-Type") != as.header.Get("Content-Type") {
			t.Errorf("%s: the compressed file has different content: %v, %v", path, err, sent.header)
		}
		if again := ask(t, web.URL+path, http.Header{"If-None-Match": {as.header.Get("ETag")}}); again.status != http.StatusNotModified || again.body != "" {
			t.Errorf("%s: a browser with the file gets %d and %d bytes", path, again.status, len(again.body))
		}
		plain, packed = plain+len(as.body), packed+len(sent.body)
	}
	if 2*packed > plain {
		t.Errorf("%d bytes are packed into %d", plain, packed)
	}
}
