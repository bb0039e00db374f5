module couponmq

go 1.19
