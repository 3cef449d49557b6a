package coroutine_test

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/proof/sim/coroutine"
)

// TestTurns has a task that waits, starts a second task and is resumed. No two tasks may run at the
// same time.
func TestTurns(t *testing.T) {
	var p coroutine.Pool
	var log strings.Builder
	var waiting *coroutine.Worker
	p.Run(func() {
		log.WriteString("a")
		p.Run(func() { log.WriteString("b") })
		waiting = p.Current()
		waiting.Wait()
		log.WriteString("d")
	})
	log.WriteString("c")
	p.Resume(waiting)
	log.WriteString("e")
	p.Run(func() {
		if p.Current() != waiting {
			t.Error("an idle worker was not used")
		}
		log.WriteString("f")
	})
	if log.String() != "abcdef" {
		t.Errorf("the order is %s", log.String())
	}
}

// TestClose ends waiting tasks.
func TestClose(t *testing.T) {
	var p coroutine.Pool
	ended := 0
	for range 3 {
		p.Run(func() {
			for !p.Closing() {
				p.Current().Wait()
			}
			ended++
		})
	}
	p.Close()
	if ended != 3 {
		t.Errorf("%d of 3 tasks have ended", ended)
	}
}
