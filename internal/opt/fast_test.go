//go:build !slow

package opt

// nKills is how often TestKill kills.
const nKills = 5
