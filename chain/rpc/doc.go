// Package rpc speaks JSON-RPC and its WebSocket with nodes of a Solana chain.
//
//	endpoint, err := rpc.ParseEndpoint("https://api.devnet.solana.com")
//	pool, err := rpc.NewPool(rpc.Options{Endpoints: []rpc.Address{endpoint}})
//	slot, err := rpc.Any(ctx, pool, func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
//		return e.Slot(ctx, rpc.Confirmed)
//	})
//
// An Endpoint is one node, with a method for each method of the chain's interface. A Pool knows
// how several of them are: Any asks them one after another until one answers, and leaves one
// alone for a while that fails or says that it is asked too often. Nothing that a node sends is
// believed to be of a reasonable size, and every error names the endpoint, without the key that
// its path may have, and the method.
package rpc
