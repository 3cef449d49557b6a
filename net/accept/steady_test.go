package accept

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowReaderKeepsReading checks that a client that reads slowly receives a long frame, and that
// a client that stops reading is disconnected.
func TestSlowReaderKeepsReading(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c := client(near)
			go func() {
				for read := 0; !stops || read < 4*pieceSize; read += pieceSize / 2 {
					if _, err := io.ReadFull(c, make([]byte, pieceSize/2)); err != nil {
						return
					}
					time.Sleep(400 * time.Millisecond)
				}
			}()
			conn := NewConn(t.Context(), far, config(t), &spoken)
			if err := conn.Handshake(t.Context(), 5*time.Second); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err := conn.WriteSteadily(t.Context(), func() time.Duration { return time.Second }, make([]byte, 5), make([]byte, 16*pieceSize-5))
			took := time.Since(began)
			if !stops && (err != nil || took < 10*time.Second) {
				t.Errorf("%v after %v, want nil after 10 s or more", err, took)
			}
			if stops && (!errors.Is(err, errTooSlow) || conn.Whole()) {
				t.Errorf("error %v, whether another frame may follow: %v", err, conn.Whole())
			}
			_ = near.Close()
			conn.Cut()
			time.Sleep(time.Second) // so that the client ends
		})
	}
}

// TestSteadyWriteEndsWithContext checks that the end of the context ends a write to a client that
// does not read, and prevents the next write.
func TestSteadyWriteEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() { _ = client(near).Handshake() }()
		ctx, hangUp := context.WithCancelCause(t.Context())
		conn := NewConn(ctx, far, config(t), &spoken)
		if err := conn.Handshake(ctx, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		hour := func() time.Duration { return time.Hour }
		time.AfterFunc(time.Second, func() { hangUp(errRefused) })
		began := time.Now()
		if err := conn.WriteSteadily(ctx, hour, make([]byte, 4*pieceSize)); err == nil || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %v, want an error within CloseTimeout", err, time.Since(began))
		}
		if err := conn.WriteSteadily(ctx, hour, make([]byte, 1)); !errors.Is(err, errRefused) {
			t.Errorf("error %v, want the cause of the context", err)
		}
		_ = near.Close()
		conn.Cut()
	})
}
