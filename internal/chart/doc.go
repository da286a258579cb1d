// Package chart draws small line and point charts and heat maps as SVG and PNG. It is pure Go and needs no fonts of the system.
package chart
