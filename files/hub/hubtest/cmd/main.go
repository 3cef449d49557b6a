// Command cmd serves an in-memory Hugging Face Hub until it is interrupted. It prints its address
// and accepts the token hf_write.
package main

import (
	"fmt"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/files/hub/hubtest"
)

func main() {
	ctx, stop := signals.Context()
	defer stop()
	s := hubtest.New()
	defer s.Close()
	s.LFSThreshold, s.PartSize = 64<<10, 100_000
	s.Tokens["hf_write"] = true
	fmt.Println(s.URL)
	<-ctx.Done()
}
