// Package cover makes covering arrays: few rows in which every two levels of two features meet.
//
// A plan has features, the levels of each, and combinations of levels that cannot be. Rows returns
// rows without such a combination in which all other pairs meet, and for each combination one row in
// which it is the only one. The same plan and seed give the same rows.
package cover
