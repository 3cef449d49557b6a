package torch_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
)

// TestMain skips the example if libtorch is missing, because an example cannot skip itself. Tests
// of Load run single tests in other processes, where nothing may be loaded before them.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.run").Value.String() == "" && os.Getenv("PSYCHE_REQUIRE_TORCH") != "1" && torch.Missing(torch.Load(torch.Options{Threads: 1})) {
		if err := flag.Set("test.skip", "^Example"); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}

// The gradient of a sum of squares. Tensors are freed when the function that made them returns.
func Example() {
	if err := torch.Load(torch.Options{Threads: 1}); err != nil {
		log.Fatal(err)
	}
	engine, err := torch.NewEngine(torch.CPU)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	err = engine.Do(context.Background(), true, func(s *torch.Scope) error {
		x := s.FromFloat32s([]float32{1, 2, 3}, 3).SetRequiresGrad(true)
		loss := x.Mul(x).Sum()
		loss.Backward()
		fmt.Println("loss", loss.Float32s()[0], "gradient", x.Grad().Float32s())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// loss 14 gradient [2 4 6]
}
