// Package cover generates pairwise covering arrays: a small number of rows in which every two
// levels of two features occur together.
//
// A plan has features, the levels of each, and forbidden combinations of levels. Rows returns rows
// without forbidden combinations that contain all possible pairs, and for each forbidden
// combination one row that contains only this one. The same plan and seed give the same rows.
package cover
