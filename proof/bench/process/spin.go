package process

import "context"

// Spin uses a processor until ctx ends.
func Spin(ctx context.Context) {
	for n := 0; ; n++ {
		if n%1_000_000 == 0 && ctx.Err() != nil {
			return
		}
	}
}
