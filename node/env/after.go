package env

import "context"

// AfterFunc calls a function once after ctx is done, like context.AfterFunc. If the context has an AfterFunc method,
// it calls that method: contexts of package sim call the function themselves, in the order of the run, without
// a goroutine.
func AfterFunc(ctx context.Context, call func()) (stop func() bool) {
	if c, ok := ctx.(interface {
		AfterFunc(call func()) (stop func() bool)
	}); ok {
		return c.AfterFunc(call)
	}
	return context.AfterFunc(ctx, call)
}
