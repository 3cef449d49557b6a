package dash

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The files of a verifier, which make verifier writes.
const (
	programFile = "verifier.wasm.gz"
	loaderFile  = "wasm_exec.js"
)

// Limits of a verifier's files, in bytes.
const (
	maxProgram = 16 << 20
	maxLoader  = 1 << 20
)

// maxPart limits a part of a log that a browser fetches, so that a slow link receives it within the
// server's time limit.
const maxPart = 256 << 10

// logRate limits the total rate of logs for all readers, in bytes per second, after an initial
// logBurst. The logs share the machine's link with everything else, such as hosting the run. Networks
// of readers take turns. A request waits at most logWait for its turn. The part must then be sent
// within partTime: over a link of 0.25 Mbit/s, this takes 8.4 s.
const (
	logRate  = 2 << 20
	logBurst = 8 << 20
	logWait  = 3 * time.Second
	partTime = 15 * time.Second
)

// Verifier is the program with which a browser checks a log: face/dash/verify as WebAssembly.
type Verifier struct {
	program []byte // gzip
	loader  []byte // JavaScript loader of the Go distribution that compiled the program
}

// ErrNoVerifier means that no verifier is installed with the program.
var ErrNoVerifier = errors.New("the verifier for browsers is not installed")

// FindVerifier returns the verifier that was built or installed with this program. It searches
// lib/, ../lib/ and ../lib/psyche/, relative to the program's directory.
func FindVerifier() (*Verifier, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, err
	}
	looked := make([]string, 0, 3)
	for _, folder := range []string{"lib", "../lib", "../lib/psyche"} {
		folder = filepath.Join(filepath.Dir(self), folder)
		v, err := readVerifier(folder)
		if !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
		looked = append(looked, folder)
	}
	return nil, fmt.Errorf("%w: make verifier writes %s and %s; looked in %s", ErrNoVerifier, programFile, loaderFile, strings.Join(looked, ", "))
}

// readVerifier reads the files of a verifier.
func readVerifier(folder string) (*Verifier, error) {
	program, err := readBounded(filepath.Join(folder, programFile), maxProgram)
	if err != nil {
		return nil, err
	}
	loader, err := readBounded(filepath.Join(folder, loaderFile), maxLoader)
	if err != nil {
		return nil, err
	}
	return &Verifier{program, loader}, nil
}

// Program returns the program for browsers, compressed with gzip.
func (v *Verifier) Program() []byte { return v.program }

func readBounded(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%s: more than %d bytes", path, most)
	}
	return content, err
}

func (v *Verifier) serveProgram(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/wasm")
	w.Header().Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(v.program) // fails if the reader has disconnected
		return
	}
	if unpacked, err := gzip.NewReader(bytes.NewReader(v.program)); err == nil {
		_, _ = io.Copy(w, unpacked) // fails if the reader has disconnected
	}
}

func (v *Verifier) serveLoader(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript")
	_, _ = w.Write(v.loader) // fails if the reader has disconnected
}

// mayRead waits for the reader's turn to read a part of a log, and reports whether it came in time.
func (p *Page) mayRead(r *http.Request) bool {
	address, _ := netip.ParseAddrPort(r.RemoteAddr)
	ctx, cancel := context.WithTimeout(r.Context(), logWait)
	defer cancel()
	return p.logs.Take(ctx, net.TCPAddrFromAddrPort(address), maxPart) == nil
}

// serveJournal sends a verified part of a run's log, starting at an offset.
func (p *Page) serveJournal(w http.ResponseWriter, r *http.Request) {
	run, ok := p.find(w, r)
	if !ok {
		return
	}
	from, err := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	if err != nil || from < 0 {
		http.Error(w, "from: want an offset in bytes, at least 0", http.StatusBadRequest)
		return
	}
	if run.Log == nil {
		http.Error(w, "this page does not have the log of this run", http.StatusNotFound)
		return
	}
	if !p.mayRead(r) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many clients are reading logs; retry in a second", http.StatusTooManyRequests)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(partTime)) // fails in tests without a connection
	part := make([]byte, maxPart)
	n, err := run.Log.ReadAt(part, from)
	if n == 0 && err != nil {
		http.Error(w, "from: the log of this run ends before this offset", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(part[:n]) // fails if the reader has disconnected
}
