/** A client of the gateway of couponmq, for servers. */
package couponmq;
