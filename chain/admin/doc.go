// Package admin does what whoever runs Psyche on a chain does there: deploy the program, begin a
// run, find it by its name, free its account. What members and the main
// authority do in a run they do as clients of package chain/solana.
//
//	c, err := admin.Open(solana.Options{Endpoints: endpoints, Key: key})
//	plan, err := c.PlanDeploy(ctx, program.ELF)
//	fmt.Println(plan.Cost)
//	err = c.Deploy(ctx, plan, nil)
//
// Everything that is paid for is a plan first, which has its cost and changes nothing. What was
// broken off goes on when it is done again: plans look at what the chain has already.
package admin
