package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// readBody reads the body of a request. Only a few bodies are read at once. At the limit, the
// address with the most bodies loses its oldest one to an address with fewer. A body that makes no
// progress times out.
func (s *Server) readBody(ctx context.Context, r *http.Request, a *answer) ([]byte, *problem) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		wrong := invalid("", "", "the Content-Type is %.60q: want application/json", r.Header.Get("Content-Type"))
		wrong.status = http.StatusUnsupportedMediaType
		return nil, wrong
	}
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slot := s.bodies.Enter(asker(r), func() { cancel(errEvicted) })
	if slot == nil {
		return nil, busy("the server is already receiving %d requests; retry later", maxBodies)
	}
	defer s.bodies.Leave(slot)
	text, err := readInTime(reading, a.control, http.MaxBytesReader(a.w, r.Body, maxBody))
	if err == nil {
		return text, nil
	}
	a.w.Header().Set("Connection", "close") // otherwise the server would wait for the rest of the body
	wrong := invalid("", "", "cannot read the body: %v", err)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		wrong = invalid("", "", "the body exceeds %d bytes", maxBody)
		wrong.status = http.StatusRequestEntityTooLarge
	} else if errors.Is(context.Cause(reading), errEvicted) {
		wrong = busy("the server is receiving too many requests (%d), and dropped this slow one; retry later", maxBodies)
	} else if ctx.Err() != nil {
		wrong = early(ctx)
	} else if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		wrong = invalid("", "", "the body arrived too slowly: want at least %d bytes, or the rest, every %v", bytesInTime, readTimeout)
		wrong.status = http.StatusRequestTimeout
	}
	return nil, wrong
}

// asker returns the address of a request.
func asker(r *http.Request) net.Addr {
	address, _ := netip.ParseAddrPort(r.RemoteAddr)
	return net.TCPAddrFromAddrPort(address)
}

// readInTime reads a body until ctx ends. Each piece has to arrive within a time limit. After an
// error the connection must not be read any more.
func readInTime(ctx context.Context, control *http.ResponseController, from io.Reader) ([]byte, error) {
	var mu sync.Mutex
	over := false // set no more deadlines
	wait := func(until time.Time, last bool) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			over = last
			_ = control.SetReadDeadline(until)
		}
	}
	past, none := time.Unix(1, 0), time.Time{}
	defer context.AfterFunc(ctx, func() { wait(past, true) })()
	var text bytes.Buffer
	for {
		wait(time.Now().Add(readTimeout), false)
		_, err := io.CopyN(&text, from, bytesInTime)
		switch {
		case errors.Is(err, io.EOF):
			wait(none, true)
			return text.Bytes(), nil
		case err != nil:
			wait(past, true)
			return nil, err
		}
	}
}
