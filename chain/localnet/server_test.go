package localnet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun advances the time by an hour.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(Config{Start: began})
		s := NewServer(l, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
			close(ended)
		}()
		time.Sleep(time.Hour + time.Millisecond)
		synctest.Wait()
		v := l.At(Processed, 0)
		if now, _ := v.time(); v.Slot != firstSlot+9000 || now != began.Add(time.Hour).Unix() {
			t.Errorf("slot %d, %d seconds", v.Slot, now-began.Unix())
		}
		cancel()
		<-ended
	})
}
