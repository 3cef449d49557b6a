// Package invite is the one string by which somebody joins a run: where its server is, which run
// it is, which key the server has to prove, and which hash the run has to have.
//
//	psyche://HOST:PORT/RUN?key=KEY&genesis=HASH
//
// Parse reads such a link strictly and says which part is wrong; Link.String writes it. Whoever
// has a link by a way that they trust needs to believe nothing that the network says.
package invite
