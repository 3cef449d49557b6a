package gcs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
	"github.com/psyche-go/psyche/files/objstore/storetest"
)

func open(t *testing.T) (*Store, *fakegcs.Server) {
	t.Helper()
	server := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", server.Host)
	s, err := Open(t.Context(), "bucket", Options{Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, server
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store {
		s, _ := open(t)
		return s
	})
}

func TestOverloadIsTriedAgain(t *testing.T) {
	s, server := open(t)
	server.Set("bucket", "a", []byte("0123"))
	server.Fail(2)
	o, err := s.Stat(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	server.Fail(2)
	if err := s.ReadAt(t.Context(), o, make([]byte, 2), 1); err != nil {
		t.Error(err)
	}
	server.Fail(1 << 20)
	if err := s.ReadAt(t.Context(), o, make([]byte, 2), 1); err == nil || errors.Is(err, objstore.ErrChanged) {
		t.Errorf("got %v", err)
	}
}

func TestErrorsNameTheObject(t *testing.T) {
	s, _ := open(t)
	_, err := s.Stat(t.Context(), "no/such")
	if err == nil || !strings.Contains(err.Error(), "gs://bucket/no/such") {
		t.Errorf("got %v; want an error and text with \"gs://bucket/no/such\"", err)
	}
}

// TestAnonymousRequestsCarryNothing checks that the user's credentials are used only on request,
// because a run selects the bucket.
func TestAnonymousRequestsCarryNothing(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
	s, server := open(t)
	server.Set("bucket", "a", []byte("0123"))
	if _, err := s.Stat(t.Context(), "a"); err != nil || server.Authorization() != "" {
		t.Errorf("%v, Authorization %q", err, server.Authorization())
	}
}
