systemd-sysusers ralph-bot.conf
systemd-tmpfiles --create ralph-bot.conf
chown root:ralph-bot /etc/sysconfig/ralph-bot
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# $1 is 1 at the first installation. A preset decides whether the unit is enabled; the nightly backup stays off.
	if [ "$1" -eq 1 ]; then systemctl preset ralph-bot.service; else systemctl try-restart ralph-bot.service; fi || :
fi
