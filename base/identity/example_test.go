package identity_test

import (
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
)

// A signature for one domain is invalid in any other.
func Example() {
	key := identity.FromSeed([identity.SeedSize]byte{1})
	message := []byte("I hold the model")
	signature := key.Sign("example/report/v1", message)
	fmt.Println(key.ID())
	fmt.Println(identity.Verify(key.ID(), "example/report/v1", message, signature))
	fmt.Println(identity.Verify(key.ID(), "example/vote/v1", message, signature))

	// Output:
	// EvFUfisEScFuZSqDXagC17m3bpP32B74dseMHtzQ5TNb
	// true
	// false
}
