// Package rpc implements a client for the JSON-RPC and WebSocket interfaces of Solana nodes.
//
//	endpoint, err := rpc.ParseEndpoint("https://api.devnet.solana.com")
//	pool, err := rpc.NewPool(rpc.Options{Endpoints: []rpc.Address{endpoint}})
//	height, err := rpc.Any(ctx, pool, func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
//		return e.BlockHeight(ctx, rpc.Confirmed)
//	})
//
// An Endpoint is one node. It has a method for each supported method of the interface. A Pool
// tracks the health of several nodes. Any asks them one after another until one answers, and
// temporarily avoids a node that fails or reports a rate limit. All answers have a size limit.
// Every error contains the method and the endpoint, without the API key that its path may contain.
package rpc
