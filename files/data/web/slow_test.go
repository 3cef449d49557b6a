package web

import (
	"net/http"
	"testing"
	"time"
)

// TestSlowLink reads a file over a slow link. The whole answer takes longer than Timeout.
func TestSlowLink(t *testing.T) {
	const pieces = 12
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range pieces {
			if _, err := w.Write(make([]byte, pieceBytes/2)); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	})
	got, err := Get(t.Context(), address, 1<<20, Options{Timeout: 600 * time.Millisecond, MaxElapsed: time.Second, Pause: time.Millisecond, Inner: true})
	if err != nil || len(got) != pieces*pieceBytes/2 {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}
