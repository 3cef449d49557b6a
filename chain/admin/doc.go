// Package admin implements administration of Psyche on a chain: it deploys the program, and
// creates, finds and frees runs. Members and main authorities act in a run through package
// chain/solana.
//
//	c, err := admin.Open(solana.Options{Endpoints: endpoints, Key: key})
//	plan, err := c.PlanDeploy(ctx, program.ELF)
//	fmt.Println(plan.Cost)
//	err = c.Deploy(ctx, plan, nil)
//
// Every operation that costs money starts with a plan, which contains the cost and changes nothing.
// To resume an interrupted operation, plan and execute it again: a plan skips everything that is
// already on the chain.
package admin
