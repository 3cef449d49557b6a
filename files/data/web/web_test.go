package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/tokens"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quick   = Options{Timeout: 300 * time.Millisecond, MaxElapsed: 900 * time.Millisecond, Pause: time.Millisecond, Inner: true}
	layout  = tokens.Options{SeqLen: 4, TokenSize: 2}
	content = bytes.Repeat([]byte{1, 0, 2, 0, 3, 0, 4, 0}, 4)
	begun   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// good serves content as a file server does.
func good(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"v1"`)
	http.ServeContent(w, r, "", begun, bytes.NewReader(content))
}

func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// after uses good at first, and a second handler after it is switched.
type after struct {
	bad  http.HandlerFunc
	turn atomic.Bool
}

func (a *after) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.turn.Load() {
		a.bad(w, r)
		return
	}
	good(w, r)
}

func answer(status int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
	}
}

func endless(header ...string) http.HandlerFunc {
	return endlessly(http.StatusPartialContent, header...)
}

// endlessly sends a body without end.
func endlessly(status int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer(status, header...)(w, r)
		for chunk := make([]byte, 1<<16); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func trickle(w http.ResponseWriter, r *http.Request) {
	answer(http.StatusPartialContent, "Content-Range", "bytes 0-9/32", "Content-Length", "10", "ETag", `"v1"`)(w, r)
	for {
		if _, err := w.Write([]byte{0}); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestTokensOfAnotherSizeAreRefused serves files of llm.c, and bare tokens of four bytes, as tokens
// of two bytes.
func TestTokensOfAnotherSizeAreRefused(t *testing.T) {
	header, err := os.ReadFile("../local/testdata/formats/llmc-llama3.bin")
	if err != nil {
		t.Fatal(err)
	}
	wide := bytes.Repeat([]byte{0x39, 0x30, 1, 0}, 2000)
	for _, file := range [][]byte{header, wide} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "", begun, bytes.NewReader(file))
		})
		if _, err := Open(context.Background(), []string{address}, tokens.Options{SeqLen: 4, TokenSize: 2, Claim: tokens.OfLocation}, quick); !errors.Is(err, tokens.ErrWrongSize) {
			t.Errorf("got %v; want error tokens.ErrWrongSize", err)
		}
		source, err := Open(context.Background(), []string{address}, tokens.Options{SeqLen: 4, TokenSize: 4}, quick)
		if err != nil {
			t.Fatal(err)
		}
		read, err := source.Read(context.Background(), []uint64{1})
		if err != nil {
			t.Fatal(err)
		}
		if id := read[0][1]; id != 5000 && id != 77881 {
			t.Errorf("token 5 is %d", id)
		}
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHostileServers has a server that first serves the file and then misbehaves. Every error comes
// in bounded time and memory, names the problem, and is permanent only if the data is wrong.
func TestHostileServers(t *testing.T) {
	part := []string{"Content-Range", "bytes 0-9/32", "ETag", `"v1"`}
	tests := []struct {
		name      string
		bad       http.HandlerFunc
		is        error
		permanent bool
	}{
		{"slow trickle", trickle, context.DeadlineExceeded, false},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil, false},
		{"endless body", endless(part...), nil, false},
		{"endless body of wrong length", endless(append(part, "Content-Length", "999999999")...), nil, false},
		{"body ends early", answer(206, append(part, "Content-Length", "0")...), nil, false},
		{"body shorter than announced", answer(206, append(part, "Content-Length", "10")...), io.ErrUnexpectedEOF, false},
		{"other range", endless("Content-Range", "bytes 2-11/32", "ETag", `"v1"`), nil, false},
		{"no Content-Range", endless(), nil, false},
		{"wild Content-Range", endless("Content-Range", "bytes 9-0/"+strings.Repeat("9", 5000)), nil, false},
		{"size unknown", endless("Content-Range", "bytes 0-9/*"), nil, false},
		{"grew", endless("Content-Range", "bytes 0-9/34", "ETag", `"v1"`), tokens.ErrChanged, true},
		{"other version", endless("Content-Range", "bytes 0-9/32", "ETag", `"v2"`), tokens.ErrChanged, true},
		{"whole file", endlessly(200, "ETag", `"v1"`), ErrNoRange, true},
		{"whole other file", endlessly(200, "ETag", `"v2"`), tokens.ErrChanged, true},
		{"precondition failed", answer(412), tokens.ErrChanged, true},
		{"range not satisfiable", answer(416), tokens.ErrChanged, true},
		{"compressed", endless(append(part, "Content-Encoding", "gzip")...), ErrStatus, false},
		{"server error", answer(500), nil, false},
		{"overload", answer(503, "Retry-After", "86400"), nil, false},
		{"forbidden", answer(403), ErrStatus, false},
		{"nonsense status", answer(299), ErrStatus, false},
		{"redirect loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }, errRedirect, false},
		{"redirect to a file", answer(302, "Location", "file:///etc/passwd"), errRedirect, false},
		{"huge head", answer(206, "X", strings.Repeat("x", 2*maxHeader)), nil, false},
		{"no HTTP", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = conn.Write(bytes.Repeat([]byte{'A'}, 1<<20))
			_ = conn.Close()
		}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			handler := &after{bad: test.bad}
			source, err := Open(t.Context(), []string{serve(t, handler.ServeHTTP) + "/a.ds?key=secret"}, layout, quick)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = source.Close() }()
			handler.turn.Store(true)
			started := time.Now()
			_, err = source.Sequences(t.Context(), assign.BatchID{End: 1})
			if took := time.Since(started); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v", err, test.is)
			}
			if !slices.Contains([]string{"hangs", "huge head", "no HTTP"}, test.name) { // net/http or the first timeout decides the text
				golden.Message(t, test.name, err)
			} else if err == nil {
				t.Error("no error")
			}
			if err != nil && (strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "/a.ds") || len(err.Error()) > 500) {
				t.Errorf("the error must name the file without its query, and be short: %v", err)
			}
			if permanent := errors.Is(err, tokens.ErrChanged) || errors.Is(err, ErrNoRange); permanent != test.permanent {
				t.Errorf("permanent is %v: %v", permanent, err)
			}
		})
	}
}

// TestMemoryIsBounded reads one sequence from servers that send without end.
func TestMemoryIsBounded(t *testing.T) {
	handler := &after{bad: endless("Content-Range", "bytes 0-9/32", "ETag", `"v1"`)}
	source, err := Open(t.Context(), []string{serve(t, handler.ServeHTTP)}, layout, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	handler.turn.Store(true)
	var before, behind runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := source.Sequences(t.Context(), assign.BatchID{End: 1}); err == nil {
		t.Error("an endless answer was read")
	}
	runtime.ReadMemStats(&behind)
	if used := behind.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("allocated %d bytes", used)
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	tests := []struct {
		name    string
		handler http.HandlerFunc
		is      error
	}{
		{"no ranges", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }, ErrNoRange},
		{"missing", answer(404), ErrStatus},
		{"empty", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", begun, bytes.NewReader(nil))
		}, nil},
		{"not satisfiable", answer(416), tokens.ErrTooShort},
		{"shorter than its magic", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", begun, strings.NewReader("1234"))
		}, tokens.ErrTooShort},
		{"numpy header", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", begun, strings.NewReader("\x93NUMPY\x01\x00v\x00{'descr'"))
		}, tokens.ErrNumpyHeader},
		{"odd length", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", begun, strings.NewReader("123456789012345"))
		}, tokens.ErrOddLength},
		{"states a wrong size", endless("Content-Range", "bytes 0-5/9223372036854775808"), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			address := serve(t, test.handler) + "/a.ds"
			_, err := Open(t.Context(), []string{address}, layout, quick)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), address) {
				t.Errorf("got %v, want %v", err, test.is)
			}
		})
	}
	for _, address := range []string{"file:///etc/passwd", "/etc/passwd", "http://", "ftp://a/b", "http://a b/"} {
		if _, err := Open(t.Context(), []string{address}, layout, quick); err == nil {
			t.Errorf("%s was opened", address)
		}
	}
}

// TestTroubleThatPasses checks that a request with a temporary error is repeated until it succeeds.
func TestTroubleThatPasses(t *testing.T) {
	var requests atomic.Int32
	troubles := []http.HandlerFunc{good, answer(503), answer(429, "Retry-After", "0"), trickle, answer(500), good}
	source, err := Open(t.Context(), []string{serve(t, func(w http.ResponseWriter, r *http.Request) {
		troubles[int(requests.Add(1))-1](w, r)
	})}, layout, Options{Timeout: 300 * time.Millisecond, MaxElapsed: 5 * time.Second, Pause: time.Millisecond, Inner: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	if _, err := source.Sequences(t.Context(), assign.BatchID{Start: 1, End: 2}); err != nil {
		t.Error(err)
	}
	if n := requests.Load(); n != 6 {
		t.Errorf("%d requests", n)
	}
}

func TestVersionsWithoutStrongETag(t *testing.T) {
	for _, header := range [][]string{{"ETag", `W/"v1"`}, {"Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT"}, nil} {
		var changed atomic.Bool
		source, err := Open(t.Context(), []string{serve(t, func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(header); i += 2 {
				value := header[i+1]
				if changed.Load() {
					value = strings.Replace(strings.Replace(value, "v1", "v2", 1), "03:04", "03:05", 1)
				}
				w.Header().Set(header[i], value)
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		})}, layout, quick)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := source.Sequences(t.Context(), assign.BatchID{End: 3}); err != nil {
			t.Errorf("%v: %v", header, err)
		}
		changed.Store(true)
		_, err = source.Sequences(t.Context(), assign.BatchID{End: 1})
		if header != nil && !errors.Is(err, tokens.ErrChanged) || header == nil && err != nil {
			t.Errorf("%v: %v", header, err)
		}
		_ = source.Close()
	}
}

// TestRetryAfterIsHonouredUpToACap uses a virtual clock.
func TestRetryAfterIsHonouredUpToACap(t *testing.T) {
	for name, test := range map[string]struct {
		requested, minimum, maximum time.Duration
	}{
		"short":    {3 * time.Second, 3 * time.Second, 3 * time.Second},
		"too long": {24 * time.Hour, maxRetryAfter, maxRetryAfter},
		"none":     {0, 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(Options{Inner: true})
			defer c.close()
			started, tries := time.Now(), 0
			err := c.do(t.Context(), "f", func(context.Context) error {
				if tries++; tries == 1 {
					return withRetryAfter(errors.New("overload"), test.requested)
				}
				return nil
			})
			if took := time.Since(started); err != nil || took < test.minimum || took > test.maximum {
				t.Errorf("%s: %v after %v, want %v to %v", name, err, took, test.minimum, test.maximum)
			}
		})
	}
}

// TestTriesEnd uses a virtual clock.
func TestTriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(Options{Inner: true})
		defer c.close()
		started, tries := time.Now(), 0
		err := c.do(t.Context(), "f", func(ctx context.Context) error {
			tries++
			<-ctx.Done() // a server that never answers
			return ctx.Err()
		})
		if took := time.Since(started); err == nil || took > 60*time.Second || tries < 2 {
			t.Errorf("%v after %v and %d tries", err, took, tries)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started = time.Now()
		err = c.do(ctx, "f", func(context.Context) error { return errors.New("again") })
		if took := time.Since(started); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "again") || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestGet(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
			return
		}
		_, _ = fmt.Fprint(w, "0123456789")
	})
	if got, err := Get(t.Context(), base, 10, quick); err != nil || string(got) != "0123456789" {
		t.Errorf("got %q, %v; want nil error and string(got) == \"0123456789\"", got, err)
	}
	if _, err := Get(t.Context(), base, 9, quick); !errors.Is(err, ErrStatus) {
		t.Errorf("too long: %v", err)
	}
	if _, err := Get(t.Context(), base+"/gone", 9, quick); !errors.Is(err, ErrStatus) {
		t.Errorf("gone: %v", err)
	}
}

// FuzzContentRange checks that only valid headers are accepted.
func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-5/1234")
	f.Add("bytes 0-5/*")
	f.Add("bytes */5")
	f.Add("bytes 5-0/9")
	fuzztest.Run(f, func(t *testing.T, header string) {
		first, last, size, err := contentRange(header)
		if err == nil && (first < 0 || first > last || last >= size) {
			t.Fatalf("%q: %d-%d/%d", header, first, last, size)
		}
	})
}

// TestConnectionsEnd checks that a server that accepts a connection and sends nothing does not
// block a reader.
func TestConnectionsEnd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if _, err := Open(t.Context(), []string{"http://" + listener.Addr().String()}, layout, quick); err == nil {
		t.Error("a silent server was opened")
	}
}
